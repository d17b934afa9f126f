"""What a member's status tells about the times of one command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.timing import Ranges, bounds_of


class Named(NamedTuple):
    """A command: its sequence, and when it was written, by ZooKeeper's clock (0: not known)."""

    sequence: str
    made_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The outcome of a part of a command. Times are ms of the member's monotonic clock."""

    command: Named
    stops: bool
    partitions: frozenset[TopicPartition]
    seen_ms: int | None = None
    stopped_ms: int | None = None
    committed_ms: int | None = None
    first_record_ms: int | None = None
    bounds: Ranges = field(init=False, compare=False)  # the partitions, as ranges
    last_ms: int = field(init=False, compare=False)  # the latest of its times; 0: it has none

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", bounds_of(self.partitions))
        times = (self.seen_ms, self.stopped_ms, self.committed_ms, self.first_record_ms)
        object.__setattr__(self, "last_ms", max((at_ms for at_ms in times if at_ms is not None), default=0))

    @property
    def first(self) -> bool:
        """True for an entry about first records."""
        return self.first_record_ms is not None

    def replaces(self, other: Told) -> bool:
        """True when this entry is a newer one about the same thing."""
        same = self.command.sequence == other.command.sequence and self.first is other.first
        return same and not self.partitions.isdisjoint(other.partitions)
