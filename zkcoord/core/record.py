"""The group record as a value: what people decided about a group. `tree.record` is its codec.

People may also ask a coordinator to do something with a group (a *request*). The coordinator answers (a *response*). In
the record's JSON these are under `wish` and `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zkcoord.core.adoption import Adoption
from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.moved import Moved
from zkcoord.core.offset_store import ZOOKEEPER, OffsetStore, offset_store

HOLD, PAUSE, REBALANCE, RESET, DELETE, POKE = "hold", "pause", "rebalance", "reset", "delete", "poke"

BEGUN, DONE = "begun", "done"
"""The values of `Request.handed_over`: DONE once all offsets are in Kafka."""

REQUESTS = (HOLD, PAUSE, REBALANCE, RESET, DELETE)
"""The requests that every record names."""

CARRIED_OUT = (HOLD, PAUSE, REBALANCE, RESET, DELETE, POKE)
"""The requests that this version carries out. Any other stays in the record until a version comes that knows it."""

MAX_REBALANCE_RETRIES, MAX_PROBES = 4, 3
"""Defaults of a record without these keys. They are part of the record's format."""

Fields = Mapping[str, Any]
"""A JSON object as its writer wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a group, with the names of its keys. What its tool did not write has its default.

    `run`: the run of the tool that asks, which the response names. `who`, `when` and `why` are for people.
    """

    handed_over: str = ""  # of a pause, while the group is left to consumers of Kafka's own protocol: BEGUN or DONE
    who: str = ""
    when: str = ""
    run: str = ""
    why: str = ""
    expiry_ms: int | None = None  # of a reset: how long a coordinator waits for the tool; None: RESET_EXPIRY_MS
    goal: str = ""  # of a reset, for people
    offsets: bool = False  # of a deletion: the offsets go, too
    paused: bool = False  # beside `handed_over`: people had paused the group before, and it stays paused
    unknown: Fields = field(default_factory=dict)  # keys and values that this version does not know, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A coordinator's response to a request: the request's run, the present state, and why the request was refused."""

    run: str = ""
    state: str = ""
    reason: str = ""
    unknown: Fields = field(default_factory=dict)  # as in Request

    def says(self, run: str, state: str) -> bool:
        """True if this is the response to that run, with that state."""
        return (self.run, self.state) == (run, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMigration:
    """The run of the tool that moves the offsets to the store `goal`."""

    goal: str = ""
    who: str = ""
    when: str = ""
    run: str = ""
    unknown: Fields = field(default_factory=dict)  # as in Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The group's policy: silent members, the wait for joins, probes, the shortest session timeout, the limit of
    moves."""

    on_timeout: str = "evict"  # or "fail": the group is marked as failed, as in the draft
    max_rebalance_retries: int = MAX_REBALANCE_RETRIES
    evict_grace_ms: int | None = None  # None: the session timeout of the evicted member
    initial_delay_ms: int = 0
    probe_interval_ms: int | None = None  # None: nobody is probed
    max_probes: int = MAX_PROBES  # answers in a row without progress, after which a member is stalled
    session_timeout_min_ms: int = 0  # a member with a shorter one is rejected
    max_moves: int | None = None  # most partitions with a living owner that one raise moves; None: no limit
    unknown: Fields = field(default_factory=dict)  # keys that this version does not know, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The decisions of people about a group. `assignor` None: the members' lists decide.

    `requests` and `responses` are those that stand, by the request's name. Some may be of a later version.
    `adoption` None: the group is not adopted (in the layout `legacy` it is not served).
    """

    assignor: str | None = None
    rebalance: Rebalance = Rebalance.COOPERATIVE
    policy: Policy = Policy()
    store_name: str = ZOOKEEPER
    store_step: int = 0
    migration: StoreMigration | None = None  # between stores; None: nobody moves the offsets
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    racks: Mapping[TopicPartition, str] = field(default_factory=dict)  # in place of the racks of the replicas
    requests: Mapping[str, Request] = field(default_factory=dict)
    responses: Mapping[str, Response] = field(default_factory=dict)
    adoption: Adoption | None = None
    moved: Moved | None = None  # moved to or from another tree: nothing is read here
    unknown: Fields = field(default_factory=dict)  # keys that this version does not know, kept
    unknown_offsets: Fields = field(default_factory=dict)  # the same inside `offsets`

    @property
    def carried_out(self) -> dict[str, Request]:
        """The requests that this version carries out."""
        return {name: request for name, request in self.requests.items() if name in CARRIED_OUT}

    @property
    def handed_over(self) -> bool:
        """True while the group is left to consumers of Kafka's own protocol: no zkcoord consumer may read it."""
        pause = self.requests.get(PAUSE)
        return pause is not None and (pause.handed_over != "" or "handed_over" in pause.unknown)

    @property
    def left_to_kafka(self) -> bool:
        """True once all offsets of a handed-over group are in Kafka. Later commits there are not zkcoord's."""
        pause = self.requests.get(PAUSE)
        return pause is not None and pause.handed_over == DONE

    def left_to(self, group: str) -> str:
        """Return why tools must not touch a handed-over group, as the end of a sentence about it; "": it is not handed
        over."""
        back = f"stop these, then run `zkcoord group take-back {group}`"
        return f"is handed over to consumers of Kafka's own protocol: {back}" if self.handed_over else ""

    @property
    def store(self) -> OffsetStore:
        """The group's offset store."""
        return offset_store(self.store_name)

    @property
    def under_way(self) -> str:
        """Return what a tool that wants to change the group's offsets must wait for; "": nothing."""
        for name, what in ((RESET, "its offsets are being reset"), (DELETE, "it is being deleted")):
            if name in self.requests:
                return f"{what}: wait until that is over"
        return ""

    @property
    def kept(self) -> GroupRecord:
        """The record after a deletion that keeps the offsets. It only says where the offsets are."""
        return GroupRecord(store_name=self.store_name, store_step=self.store_step)


DEFAULT_RECORD = GroupRecord()
