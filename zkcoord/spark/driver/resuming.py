"""Starts partitions at the end that a table has recorded itself, if the consumer's user asks for it (`resume_from`).

It is for a table that was restored to an earlier version, or moved to another group or cluster: the group's offsets say
what was processed, and the table says what it contains.
"""

from __future__ import annotations

import logging

from zkcoord.core.model import TopicPartition
from zkcoord.spark.driver.batch_guard import BatchGuard, View
from zkcoord.spark.driver.moving import move_positions
from zkcoord.spark.ports import Membership, TableEnds
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks.once import partition_name


class TableStart:
    """Compares the positions of newly started partitions with a table's ends. For the batch thread."""

    def __init__(self, ends: TableEnds | None, group: str, membership: Membership, guard: BatchGuard) -> None:
        """`ends` is None if positions are not compared with a table."""
        self._ends, self._group = ends, group
        self._membership, self._guard = membership, guard
        self._checked: dict[TopicPartition, int] = {}  # the start by which it was held when compared

    def apply(self, view: View) -> bool:
        """Move newly started partitions to the table's ends. Return True if it moved any.

        A partition that the table does not know stays at the group's offset. So does a partition with an announced
        range, since the sink leaves out the rows that the table has. But if the table ends before that range, the range
        would be written after a gap, and is given up. Raises UnavailableError or FencedError if the table cannot be
        read, or the new positions cannot be committed; then nothing was moved.
        """
        new = [each for each, hold in view.holds.items() if self._checked.get(each) != hold.start]
        if self._ends is None or not new:
            return False
        end = self._ends()
        targets = {}
        for each in new:
            hold = view.holds[each]
            numbered = OffsetRange(*each, 0, 0, self._membership.incarnation(each))
            found = end(partition_name(self._group, numbered))
            if found is not None and (found < hold.position or (found > hold.position and hold.announced is None)):
                targets[each] = found
        moved = move_positions(self._guard, self._membership, view, targets) if targets else {}
        self._checked |= {each: view.holds[each].start for each in new if each not in targets or each in moved}
        for each, position in moved.items():
            was = view.holds[each].position
            log_event(
                logging.WARNING,
                "resumed_from_table",
                f"{each}: the group's offset was {was}, and the table ends at {position}: reading goes on there, as "
                "resume_from asks",
                group=self._group,
                partitions=[str(each)],
                offsets={str(each): position},
                was=was,
            )
        return bool(moved)
