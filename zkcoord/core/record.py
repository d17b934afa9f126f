"""The group record as a value: what people decided about a group. `tree.record` is its codec.

People may also ask a coordinator to do something with a group (a *request*). The coordinator answers (a *response*). In
the record's JSON these are under `wish` and `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkcoord.core.adoption import Adoption
from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.moved import Moved
from zkcoord.core.offset_store import ZOOKEEPER, OffsetStore, offset_store

HOLD, PAUSE, REBALANCE, RESET, DELETE, POKE = "hold", "pause", "rebalance", "reset", "delete", "poke"

HANDED_OVER, BEGUN, DONE = "handed_over", "begun", "done"
"""A pause has the key `handed_over` while its group is left to consumers of Kafka's own protocol. The value is `begun`
at first, and `done` once all offsets are in Kafka."""

PAUSED_BEFORE = "paused"
"""A key of such a pause. It says that people had paused the group before: it stays paused when it is taken back."""

REQUESTS = (HOLD, PAUSE, REBALANCE, RESET, DELETE)
"""The requests that every record names."""

CARRIED_OUT = (HOLD, PAUSE, REBALANCE, RESET, DELETE, POKE)
"""The requests that this version carries out. Any other stays in the record until a version comes that knows it."""

MAX_REBALANCE_RETRIES, MAX_PROBES = 4, 3
"""Defaults of a record without these keys. They are part of the record's format."""

Fields = Mapping[str, Any]
"""A JSON object as its writer wrote it."""


class Request(NamedTuple):
    """A request to a group: the run of the tool that asks and, for a deletion, whether the offsets go, too.

    `expiry_ms`: how long a coordinator waits for the tool to end a reset; None: RESET_EXPIRY_MS.
    """

    run: str
    offsets: bool = False
    expiry_ms: int | None = None


class Response(NamedTuple):
    """A coordinator's response to a request: the request's run, and the present state."""

    run: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The group's policy: silent members, the wait for joins, probes, the shortest session timeout, the limit of
    moves."""

    on_timeout: str = "evict"  # or "fail": the group is marked as failed, as in the draft
    max_rebalance_retries: int = MAX_REBALANCE_RETRIES
    evict_grace_ms: int | None = None  # None: the session timeout of the evicted member
    initial_delay_ms: int = 0
    probe_interval_ms: int | None = None  # None: nobody is probed
    max_probes: int = MAX_PROBES  # answers in a row without progress, after which a member is dead inside
    session_timeout_min_ms: int = 0  # a member with a shorter one is rejected
    max_moves: int | None = None  # most partitions with a living owner that one raise moves; None: no limit
    unknown: Fields = field(default_factory=dict)  # keys that this version does not know, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The decisions of people about a group. `assignor` None: the members' lists decide.

    `wish` and `done` are the requests and responses as they are in the record; the value None counts as missing.
    `adoption` None: the group is not adopted (in the layout `legacy` it is not served).
    """

    assignor: str | None = None
    rebalance: Rebalance = Rebalance.COOPERATIVE
    policy: Policy = Policy()
    store_name: str = ZOOKEEPER
    store_step: int = 0
    migration: Fields | None = None  # of the tool that moves the offsets: the goal, and who runs the tool
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    racks: Mapping[TopicPartition, str] = field(default_factory=dict)  # in place of the racks of the replicas
    wish: Mapping[str, Fields | None] = field(default_factory=lambda: dict.fromkeys(REQUESTS))
    done: Mapping[str, Fields | None] = field(default_factory=dict)
    adoption: Adoption | None = None
    moved: Moved | None = None  # moved to or from another tree: nothing is read here
    unknown: Fields = field(default_factory=dict)  # keys that this version does not know, kept
    unknown_offsets: Fields = field(default_factory=dict)  # the same inside `offsets`

    @property
    def requests(self) -> dict[str, Request]:
        """The requests that this version carries out."""
        return {
            name: Request(_run(wish), wish.get("offsets") is True, _expiry_ms(wish))
            for name, wish in self.wish.items()
            if wish is not None and name in CARRIED_OUT
        }

    @property
    def handed_over(self) -> bool:
        """True while the group is left to consumers of Kafka's own protocol: no zkcoord consumer may read it."""
        return HANDED_OVER in (self.wish.get(PAUSE) or {})

    @property
    def left_to_kafka(self) -> bool:
        """True once all offsets of a handed-over group are in Kafka. Later commits there are not zkcoord's."""
        return (self.wish.get(PAUSE) or {}).get(HANDED_OVER) == DONE

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
            if self.wish.get(name) is not None:
                return f"{what}: wait until that is over"
        return ""

    @property
    def kept(self) -> GroupRecord:
        """The record after a deletion that keeps the offsets. It only says where the offsets are."""
        return GroupRecord(store_name=self.store_name, store_step=self.store_step)

    @property
    def responses(self) -> dict[str, Response]:
        """The responses to requests that this version carries out."""
        return {
            name: Response(_run(done), str(done.get("state")))
            for name, done in self.done.items()
            if done is not None and name in CARRIED_OUT
        }


DEFAULT_RECORD = GroupRecord()


def _run(fields: Fields) -> str:
    """The run of the tool that asks; "" if somebody edited the record and left it out."""
    run = fields.get("run")
    return run if isinstance(run, str) else ""


def _expiry_ms(fields: Fields) -> int | None:
    """How long, in ms, the tool asks a coordinator to wait for it. None: it does not say so in a whole number."""
    expiry_ms = fields.get("expiry_ms")
    return expiry_ms if isinstance(expiry_ms, int) and not isinstance(expiry_ms, bool) and expiry_ms > 0 else None
