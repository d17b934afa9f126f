"""Announces ranges before they are processed, and selects announced ranges that must be processed again.

After a crash the next owner of a partition, in this program or another, processes the same range again. So a sink that
keys by ranges holds no record twice (docs/protocol.md, section 7). Announced ranges are processed first, in batches of
their own. They are never split, merged or mixed with new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.spark.driver.batch_guard import BatchGuard, Hold
from zkcoord.spark.ports import Membership
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import OffsetRange


class Said(Enum):
    """The result of an announcement."""

    ANNOUNCED = "announced"
    FENCED = "fenced"  # a partition of it was lost, or is being stopped
    REFUSED = "refused"  # ZooKeeper refused it; the command that explains the refusal is on its way
    AWAY = "away"
    TOO_LARGE = "too large"  # batches contain fewer partitions from now on


def announced_ranges(
    holds: Mapping[TopicPartition, Hold], ends: Mapping[TopicPartition, int], max_offsets: int
) -> tuple[OffsetRange, ...]:
    """Return the announced ranges to read next, sorted. They are whole ranges: up to `max_offsets` in all, or a single
    larger one.

    A range waits while its log does not answer, or does not reach the range's end yet.

    >>> holds = {TopicPartition("t", n): Hold(0, 1, announced=end) for n, end in ((0, 70), (1, 60), (2, 20), (3, None))}
    >>> [str(each) for each in announced_ranges(holds, dict.fromkeys(holds, 100), 100)]
    ['t-0-0-70', 't-2-0-20']
    """
    found: list[OffsetRange] = []
    left = max_offsets
    for each, hold in sorted(holds.items()):
        if hold.announced is None or ends.get(each, hold.position) < hold.announced:
            continue
        size = hold.announced - hold.position
        if size <= left or not found:
            found.append(OffsetRange(each.topic, each.partition, hold.position, hold.announced))
            left -= size
    return tuple(found)


class Announcer:
    """Writes ranges into the member's status. For the batch thread."""

    def __init__(self, membership: Membership, guard: BatchGuard, group: str) -> None:
        self._membership, self._guard, self._group = membership, guard, group
        self._ranges_max: int | None = None

    def fitting(self, ranges: tuple[OffsetRange, ...], turn: int) -> tuple[OffsetRange, ...]:
        """Return as many of these ranges as fit into one announcement. `turn` is a rising number that determines which
        ranges are taken."""
        if self._ranges_max is None or len(ranges) <= self._ranges_max:
            return ranges
        first = turn * self._ranges_max % len(ranges)
        return tuple(sorted((ranges + ranges)[first : first + self._ranges_max]))

    def announce(self, ranges: tuple[OffsetRange, ...]) -> Said:
        """Announce the ranges of the running batch. The batch may read only after ANNOUNCED."""
        if not self._guard.claim():
            return Said.FENCED
        try:
            self._membership.announce({each.topic_partition: (each.start, each.end) for each in ranges})
        except FencedError as error:
            self._tell(logging.WARNING, "announcement_refused", f"the batch is not begun: {error}")
            return Said.REFUSED
        except UnavailableError as error:
            self._tell(logging.WARNING, "announcement_delayed", f"no batch can be begun: {error}")
            return Said.AWAY
        except UsageError:
            if len(ranges) == 1:
                raise
            self._ranges_max = len(ranges) // 2
            self._tell(
                logging.WARNING,
                "announcement_too_large",
                f"{len(ranges)} ranges are too many for one announcement: batches have {self._ranges_max} from now on",
            )
            return Said.TOO_LARGE
        return Said.ANNOUNCED if self._guard.announced() else Said.FENCED

    def _tell(self, level: int, event: str, text: str) -> None:
        log_event(level, event, text, group=self._group)
