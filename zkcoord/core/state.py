"""The group state as a value: a coordinator leaves it to the next one. `tree.state` is its codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition


class Announced(NamedTuple):
    """A range that a member was about to process, with the generation of its start, and the number of the topic's
    incarnation (0: untold). See `core.replay`."""

    start: int
    end: int
    generation: int
    incarnation: int = 0


class Quarantine(NamedTuple):
    """Why a partition is given to nobody, and the newest member's czxid then: a newer one is given a try."""

    why: str
    czxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the group was given up, and in which generation. In JSON `{"error":…,"since_generation":…}`."""

    error: str
    since_generation: int


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """The state as the coordinator wrote it last. `tree.plan` sets `incarnations` when it removes marks."""

    generation: int = 0
    target: str = ""  # the digest of this generation's assignment
    stopping: bool = False  # eager: everybody stops, nobody is granted anything yet
    refused: Mapping[str, str] = field(default_factory=dict)  # consumer id or partition -> why it is left out
    failed: Failure | None = None
    quarantined: Mapping[TopicPartition, Quarantine] = field(default_factory=dict)  # given to nobody
    replay: Mapping[TopicPartition, Announced] = field(default_factory=dict)  # ranges that no channel holds any more
    incarnations: int = 0  # the highest number in a mark that was removed
    until: TopicPartition | None = None  # moves that count stop here, see `core.budget`
    mode: Mode = Mode.COORDINATED  # as noted; the next coordinator renews marks when it finds the group coordinated
    problem: str | None = None  # why the assignment is not what was asked for
    empty_ms: int = 0  # how long coordinators have seen it without members
    deleted: bool = False  # it was deleted, its offsets were kept, and no member has been seen since
    brokers: Mapping[int, str] = field(default_factory=dict)  # the racks that the target was made of, by broker id
    forgiven: Mapping[str, str] = field(default_factory=dict)
    # by a request: consumer -> what it refused up to this sequence of its channel, while that stands in its status
