"""Moves positions of held partitions, by a commit of the new ones."""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.spark.driver.batch_guard import BatchGuard, End, View
from zkcoord.spark.ports import Membership
from zkcoord.spark.ranges import OffsetRange

TAG = "reset"  # names a batch that reads nothing, so there is nothing to cancel


def move_positions(
    guard: BatchGuard, membership: Membership, view: View, targets: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Commit these positions as a batch without records. Return those that were moved. For the batch thread.

    A partition that is not held any more as in `view` is left out. Raises UnavailableError or FencedError if the
    positions cannot be committed.
    """
    points = [OffsetRange(each.topic, each.partition, to, to) for each, to in sorted(targets.items())]
    kept = guard.begin(TAG, points, view)
    if not kept:
        return {}
    end, moved = End.UNTRIED, {each.topic_partition: each.end for each in kept}
    try:
        if guard.claim():
            end = End.UNKNOWN
            membership.commit(moved)
            end = End.COMMITTED
    finally:
        guard.finish(end, moved)
    return moved if end is End.COMMITTED else {}
