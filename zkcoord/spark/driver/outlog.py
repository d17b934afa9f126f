"""Handles positions and announced ranges that the log does not have any more: it applies the reset policy, and logs it.

`failOnDataLoss=false` is never used: it silently reads what is left, and the commit would skip the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.driver.batch_guard import BatchGuard, Hold, View
from zkcoord.spark.driver.moving import move_positions
from zkcoord.spark.ports import Isolation, LogEnds, Membership
from zkcoord.spark.progress import log_event
from zkcoord.spark.starting import StartingPoints

ASK_TIMEOUT_MS = 5_000  # for a question to Kafka that delays the loop; it is repeated
BEHIND = "lies behind the log's end: the topic was created again, or its log was cut"
BEFORE = "lies before the log's start: records were deleted before this group read them"
CUT = "the announced range {0}..{1} is not whole in the log any more, which ends at {2}: it was cut"
ASKED = "Nothing is read (out_of_range='fail'): set the group's offset, or choose out_of_range='earliest' or 'latest'"


class OutOfLog:
    """Finds held positions outside of their logs and moves them by the reset policy. For the batch thread."""

    def __init__(
        self, log_ends: LogEnds, membership: Membership, guard: BatchGuard, points: StartingPoints | None
    ) -> None:
        """`points` says where reading continues. None: a UsageError says what an operator has to decide."""
        self._log_ends, self._membership, self._guard, self._points = log_ends, membership, guard, points
        self._checked: dict[TopicPartition, int] = {}
        # the start by which it was held when its position was compared with the log's start

    def repair(self, view: View, ends: Mapping[TopicPartition, int], isolation: Isolation) -> bool:
        """Compare the positions in `view` with the ends, and new positions also with the starts. Returns True if it
        moved positions, or ended an announcement because the log ends within its range.

        It needs one more request if partitions were started since the last call, or if something is wrong. Raises
        UnavailableError or FencedError if new positions cannot be committed; then no position was moved. Raises
        UsageError if positions must not be moved.
        """
        high = ends
        beyond = {each: hold for each, hold in view.holds.items() if each in ends and _needs(hold) > ends[each]}
        if beyond and isolation == "read_committed":  # perhaps only beyond an open transaction
            high, _ = self._log_ends.ask_offsets(beyond, "latest", "read_uncommitted", ASK_TIMEOUT_MS)
            beyond = {each: hold for each, hold in beyond.items() if each in high and _needs(hold) > high[each]}
        started = [each for each, hold in view.holds.items() if self._checked.get(each) != hold.start and each in ends]
        before = self._before_start(view, started)
        cut = {each: hold for each, hold in beyond.items() if hold.position <= high[each] and each not in before}
        ended = self._end_announcements(cut, high)
        moved = self._move(view, {each: hold for each, hold in beyond.items() if hold.position > high[each]}, before)
        return ended or moved

    def explains(self, partitions: Collection[TopicPartition], isolation: Isolation) -> bool:
        """Return True if a batch of these failed because its records are gone. Then their positions were moved."""
        ends, _ = self._log_ends.ask_offsets(partitions, "latest", isolation, ASK_TIMEOUT_MS)
        view = self._guard.view()
        for each in partitions:
            self._checked.pop(each, None)
        mine = {each: hold for each, hold in view.holds.items() if each in partitions}
        return self.repair(View(mine, view.change, False), ends, isolation)

    def _end_announcements(self, cut: Mapping[TopicPartition, Hold], ends: Mapping[TopicPartition, int]) -> bool:
        """End the announcements of ranges that the logs cut short. Reading continues there with new ranges."""
        texts = {each: CUT.format(hold.position, hold.announced, ends[each]) for each, hold in sorted(cut.items())}
        if texts and self._points is None:
            first = min(texts)
            raise UsageError(f"{first}: {texts[first]}. {ASKED}")
        self._guard.forget(texts)
        for each, text in texts.items():
            told = f"{each}: {text}. What is left of it is read anew, and may then be there twice"
            log_event(logging.WARNING, "announcement_ended", told, partitions=[str(each)])
        return bool(texts)

    def _before_start(self, view: View, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Hold]:
        if not partitions:
            return {}
        starts, _ = self._log_ends.ask_offsets(partitions, "earliest", None, ASK_TIMEOUT_MS)
        self._checked |= {each: view.holds[each].start for each in starts}
        return {each: view.holds[each] for each, start in starts.items() if view.holds[each].position < start}

    def _move(self, view: View, beyond: Mapping[TopicPartition, Hold], before: Mapping[TopicPartition, Hold]) -> bool:
        """Commit the new positions at once, as a batch without records. Otherwise a restart could apply `latest` again
        and skip the records that came meanwhile. A position that its log has reached meanwhile is not moved."""
        if not beyond and not before:
            return False
        if self._points is None:
            raise UsageError(_refusal(beyond, before))
        targets = self._points.positions(self._log_ends, [*beyond, *before])
        targets = {each: to for each, to in targets.items() if each in before or to < beyond[each].position}
        if not targets:  # the logs have caught up meanwhile
            return True
        moved = move_positions(self._guard, self._membership, view, targets)
        for each, position in moved.items():
            policy = self._points.said(each.topic)
            was, why = view.holds[each].position, BEHIND if each in beyond else BEFORE
            log_event(
                logging.WARNING,
                "position_reset",
                f"{each}: offset {was} {why}. Reading goes on at {position} ({policy})",
                partitions=[str(each)],
                offsets={str(each): position},
                was=was,
                policy=policy,
            )
        return bool(moved)


def _refusal(beyond: Mapping[TopicPartition, Hold], before: Mapping[TopicPartition, Hold]) -> str:
    """Say what an operator has to decide: the first of the positions, and the choices."""
    first = min([*beyond, *before])
    hold, why = (beyond[first], BEHIND) if first in beyond else (before[first], BEFORE)
    others = f" (and {len(beyond) + len(before) - 1} more)" if len(beyond) + len(before) > 1 else ""
    return f"{first}{others}: offset {hold.position} {why}. {ASKED}"


def _needs(hold: Hold) -> int:
    """Return the smallest end of a log that contains everything of the hold."""
    return hold.position if hold.announced is None else hold.announced
