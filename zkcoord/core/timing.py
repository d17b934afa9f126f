"""What a member's status tells about the times of its last commands. For people only: no decision depends on it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from zkcoord.core.model import TopicPartition

Bounds = tuple[tuple[int, int], ...]
"""Ranges of partition numbers, ascending: (lowest, highest) of each."""

Ranges = tuple[tuple[str, Bounds], ...]
"""Partitions as ranges, by topic, ascending. It is hashable, so values made from it can be cached by it."""


class Timing(NamedTuple):
    """A part of one command. Ages are in ms, counted back from the moment at which the status was written. None: not
    told.

    `seen_ms`: the member had read the command. `stopped_ms`: its application did not read these partitions any more.
    `committed_ms`: no commit delayed their release any more, and it was sent. `first_record_ms`: the application was
    handed the first record of them.
    """

    sequence: str  # ten digits
    stops: bool  # a stop; else a start
    made_ms: int  # when the command was written, by ZooKeeper's clock; 0: not known
    partitions: Ranges
    seen_ms: int | None = None
    stopped_ms: int | None = None
    committed_ms: int | None = None
    first_record_ms: int | None = None

    def names(self, partition: TopicPartition) -> bool:
        """True when this is about the partition."""
        place = bisect_left(self.partitions, (partition.topic,))
        topic, bounds = self.partitions[place] if place < len(self.partitions) else ("", ())
        place = bisect_right(bounds, (partition.partition, 2**63)) - 1
        return topic == partition.topic and place >= 0 and bounds[place][1] >= partition.partition


def bounds_of(partitions: Iterable[TopicPartition]) -> Ranges:
    """Return partitions as ranges.

    >>> bounds_of([TopicPartition("t", 3), TopicPartition("t", 0), TopicPartition("t", 1)])
    (('t', ((0, 1), (3, 3))),)
    """
    runs: dict[str, list[tuple[int, int]]] = {}
    for topic, number in sorted(partitions):
        found = runs.setdefault(topic, [])
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple((topic, tuple(found)) for topic, found in runs.items())
