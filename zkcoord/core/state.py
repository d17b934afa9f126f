"""The group state as a value. A coordinator leaves it to the next one. `tree.state` is its codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition


class Announced(NamedTuple):
    """A range that a member was about to process, the generation of its start, and the number of the topic's
    incarnation (0: not told). See `core.replay`."""

    start: int
    end: int
    generation: int
    incarnation: int = 0


class Quarantine(NamedTuple):
    """Why a partition is given to nobody, and the czxid of the newest member at that time: a newer member is given a
    try."""

    why: str
    czxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the group was given up, and in which generation. In JSON it is `{"error":…,"since_generation":…}`."""

    error: str
    since_generation: int


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """The state that the coordinator wrote last. `tree.plan` sets `incarnations` when it removes marks."""

    generation: int = 0
    target: str = ""  # the digest of this generation's assignment
    stopping: bool = False  # eager: all members stop, and nobody is granted anything yet
    refused: Mapping[str, str] = field(default_factory=dict)  # consumer id or partition -> why it is left out
    failed: Failure | None = None
    quarantined: Mapping[TopicPartition, Quarantine] = field(default_factory=dict)  # given to nobody
    replay: Mapping[TopicPartition, Announced] = field(default_factory=dict)  # ranges that no channel holds any more
    incarnations: int = 0  # the highest number in a removed mark
    until: TopicPartition | None = None  # the last partition that may move, see `core.budget`
    mode: Mode = Mode.COORDINATED
    # the mode when it was last written; a coordinator renews marks when it finds the group coordinated again
    problem: str | None = None  # why the assignment differs from the requested one
    empty_ms: int = 0  # ms without members, as far as coordinators saw
    deleted: bool = False  # True if it was deleted with its offsets kept, and no member has been seen since
    brokers: Mapping[int, str] = field(default_factory=dict)  # broker id -> rack, from which the target was computed
    forgiven: Mapping[str, str] = field(default_factory=dict)
    # by a request: consumer -> highest sequence of its forgiven refusals, while one is in its status
    old: frozenset[TopicPartition] = frozenset()  # what old members have, or may still commit, see `core.old_owners`
    old_as_of: int = 0  # number of changes of `ids` that `old` covers; 0: it covers none
