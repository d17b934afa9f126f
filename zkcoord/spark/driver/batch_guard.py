"""The partitions that this consumer holds, and those that its running batch reads. It is the only place where the batch
thread and the commands meet.

Two threads use it. The *batch* thread plans, reads and commits. The *worker* thread of the membership brings the
commands: `start`, `stop`, `lose`. One condition guards all state. No foreign code is called while it is held.

A hold has the number of its `start`. A batch remembers the starts with which it began. Its work counts for a partition
only while that partition is held by the same start. For a partition that was lost in between (and perhaps started
again), nothing is committed and no position moves.

    begin ──► RUNNING ──claim──► WRITING ──► finish            `fenced`: what it reads was lost; it is cancelled,
                 ▲                  │                             and `claim` says no
                 └── commit_failed, ┘
                     announced

A range that was announced, here or by an earlier owner of the partition, belongs to the hold whose position is the
range's start: exactly this range is read next. After a loss or a stop the range is forgotten. The membership passes it
again with the next start (`replay`), because only the membership knows whether the range still counts: a commit may
have passed it, or the topic may have been created again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from threading import Condition
from typing import NamedTuple

from zkcoord.clock import mono_ms
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import InvariantError, UnavailableError, invariant
from zkcoord.spark.ports import Limits, Stopped
from zkcoord.spark.ranges import OffsetRange

TOO_LONG = "raise rebalance_timeout_ms, or lower max_offsets_per_batch"


class Hold(NamedTuple):
    """A held partition: the next offset to read, and the number of the start by which it is held.

    `sure` is False after a commit that failed: then `position` may differ from the committed offset. `announced` is the
    end of the range that was announced from this position on.
    """

    position: int
    start: int
    sure: bool = True
    announced: int | None = None


class Phase(Enum):
    """The state of the running batch."""

    RUNNING = "running"
    WRITING = "writing"  # its announcement, or its commit


class End(Enum):
    """The result of a batch."""

    COMMITTED = "committed"
    UNTRIED = "untried"  # no commit was sent
    REFUSED = "refused"  # a commit was fenced
    UNKNOWN = "unknown"  # a commit was sent and may or may not have happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The running batch. `tag` names it for a cancellation. `starts` are the starts of its partitions' holds."""

    tag: str
    ranges: tuple[OffsetRange, ...]
    starts: Mapping[TopicPartition, int]
    phase: Phase = Phase.RUNNING
    fenced: str = ""  # why it may not be committed any more


class View(NamedTuple):
    """The holds that may be planned now. `change` rises with every change, so that no wait misses one."""

    holds: Mapping[TopicPartition, Hold]
    change: int
    leaving: bool


class BatchGuard:
    """Thread safe. It calls `cancel(tag)` when it fences a batch; `cancel` must return at once."""

    def __init__(self, cancel: Callable[[str], None], limits: Limits) -> None:
        self._cancel, self._limits = cancel, limits
        self._changed = Condition()
        self._holds: dict[TopicPartition, Hold] = {}
        self._stopping: set[TopicPartition] = set()
        # a stop has named them since their start: they are not planned any more
        self._running: Running | None = None
        self._replay: dict[TopicPartition, tuple[int, int]] = {}  # announced ranges for the start that comes next
        self._change = 0
        self._leaving = False

    # the worker thread: commands

    def replay(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Remember announced ranges that no commit has passed, for the `start` that comes next."""
        with self._changed:
            self._replay = dict(ranges)

    def start(self, starting: Starting) -> None:
        """Hold these partitions from now on, at these offsets. They take part in the next batch.

        If a commit for one of them is under way, it was decided before this start: wait for its end. Raises
        UnavailableError if it does not end.
        """

        def clear() -> bool:
            batch = self._running
            return batch is None or batch.phase is Phase.RUNNING or batch.starts.keys().isdisjoint(starting)

        with self._changed:
            replay, self._replay = self._replay, {}
            if not self._changed.wait_for(clear, self._limits.commit_wait_ms / 1000):
                raise UnavailableError("a commit of an earlier ownership is still under way; start again later")
            for each, position in starting.items():
                start, end = replay.get(each, (position, None))
                self._holds[each] = Hold(position, starting.number, announced=end if start == position else None)
                self._stopping.discard(each)
            self._notify()

    def stop(
        self,
        partitions: Collection[TopicPartition],
        timeout_ms: int,
        leased: Callable[[TopicPartition], bool],
        stopped: Stopped,
        *,
        cancel: bool = False,
    ) -> dict[TopicPartition, int]:
        """Give up these partitions. Return the final offsets of those whose committed offset is known.

        Partitions that no batch reads are given up at once; if others are being read, `stopped` is called with the free
        ones and their final offsets. The others wait until the batch is committed; with `cancel`, until it is fenced
        and has ended. If the batch is not over within `timeout_ms`, or the lease ends, it is fenced and not committed.
        """
        with self._changed:
            mine = {each for each in partitions if each in self._holds}
            self._stopping |= mine
            read = {each for each in mine if self._reading([each]) is not None}
            free = mine - read if read else set()
            final = self._drop(free)
        if free:
            stopped(free, final)
            mine = read
        deadline = mono_ms() + timeout_ms
        while (tag := self._reading(mine)) is not None:
            left_ms = deadline - mono_ms()
            if not all(leased(each) for each in mine):
                self._end_early(tag, "they are not this consumer's any more while a stop waited for it")
                break
            if left_ms <= 0:
                self._end_early(tag, f"a stop waited {timeout_ms} ms for it: {TOO_LONG}")
                break
            if cancel:
                self.fence(tag, "a stop cancels it (at_rebalance)")
            self.await_end(tag, min(left_ms, self._limits.lease_check_ms))
        return self._drop(mine)

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Drop these partitions, which are not owned any more, and fence the batch that reads one of them.

        Returns when that batch has stopped reading, at the latest after `cancel_wait_ms` (the batch stays fenced).
        """
        with self._changed:
            tag = self._reading(partitions)
            self._drop(partitions)
        if tag is not None:
            self._end_early(tag, "partitions of it were lost")

    # the batch thread

    def view(self) -> View:
        """Return what may be planned now."""
        with self._changed:
            holds = {each: hold for each, hold in self._holds.items() if each not in self._stopping}
            return View(holds, self._change, self._leaving)

    def begin(self, tag: str, ranges: Iterable[OffsetRange], seen: View) -> tuple[OffsetRange, ...]:
        """Begin a batch that was planned on `seen`. Return the ranges whose partitions are still held as they were
        then.

        From here on a stop of these partitions waits for the batch. If no range is left, or the consumer is leaving, no
        batch begins.
        """
        with self._changed:
            invariant(self._running is None, "a batch begins while another one runs")
            kept = tuple(
                each
                for each in ranges
                if not self._leaving
                and each.topic_partition not in self._stopping
                and self._holds.get(each.topic_partition) == seen.holds[each.topic_partition]
            )
            if kept:
                starts = {each.topic_partition: self._holds[each.topic_partition].start for each in kept}
                self._running = Running(tag=tag, ranges=kept, starts=starts)
            return kept

    def claim(self) -> bool:
        """Return True if the running batch may be announced or committed now. Then a new start of its partitions waits
        for the end of that write."""
        with self._changed:
            batch = self._batch()
            if batch.fenced or len(self._still_held(batch)) < len(batch.starts):
                return False
            self._running = replace(batch, phase=Phase.WRITING)
            return True

    def announced(self) -> bool:
        """Note that the running batch is announced: its ranges do not change any more. False if it was fenced
        meanwhile."""
        with self._changed:
            batch = self._batch()
            self._running = replace(batch, phase=Phase.RUNNING)
            ends = {each.topic_partition: each.end for each in batch.ranges}
            for each in self._still_held(batch):
                self._holds[each] = self._holds[each]._replace(announced=ends[each])
            self._notify()
            return not batch.fenced

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the announced ranges of these partitions, which cannot be read any more."""
        with self._changed:
            for each in partitions:
                if each in self._holds:
                    self._holds[each] = self._holds[each]._replace(announced=None)

    def commit_failed(self) -> None:
        """Note that the commit may have failed. It is repeated after another `claim`."""
        with self._changed:
            self._running = replace(self._batch(), phase=Phase.RUNNING)
            self._notify()

    def finish(self, end: End, offsets: Mapping[TopicPartition, int]) -> str:
        """End the batch. COMMITTED moves the positions of partitions that are still held to `offsets`.

        Returns why the batch was fenced, "" if it was not.
        """
        with self._changed:
            batch = self._batch()
            for each in self._still_held(batch):
                if end is End.COMMITTED:
                    self._holds[each] = Hold(offsets[each], batch.starts[each])
                elif end is not End.UNTRIED:
                    self._holds[each] = self._holds[each]._replace(sure=False)
            self._running = None  # last: an exception before this line leaves the batch to `leave_off`
            self._notify()
            return batch.fenced

    def leave_off(self) -> None:
        """End a batch that the batch thread has left by an exception between two lines, as a signal's handler may raise
        it. It is unknown whether the batch was committed."""
        with self._changed:
            if self._running is not None:
                self.finish(End.UNKNOWN, {})

    # any thread

    def leave(self, *, cancel: str | None = None) -> None:
        """Ask the batch thread to finish its batch and leave. `cancel`: drop the batch instead, for this reason."""
        with self._changed:
            self._leaving = True
            tag = self._running.tag if self._running is not None else None
            self._notify()
        if cancel is not None and tag is not None:
            self.fence(tag, cancel)

    def fence(self, tag: str, why: str) -> bool:
        """Forbid batch `tag` to commit, and cancel it. Returns at once: True if the caller should wait for the batch's
        end.

        False while its announcement or commit is under way: it does not read then, and the commit's outcome decides.
        """
        with self._changed:
            batch = self._running
            if batch is None or batch.tag != tag:
                return False
            self._running = replace(batch, fenced=batch.fenced or why)
            self._notify()
        if batch.phase is Phase.WRITING:
            return False
        if not batch.fenced:
            self._cancel(tag)
        return True

    def await_change(self, change: int, timeout_ms: int) -> bool:
        """Wait for a change after `change`. False if none came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._change != change, timeout_ms / 1000)

    def await_end(self, tag: str, timeout_ms: int) -> bool:
        """Wait until batch `tag` is over. False if it did not end in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running is None or self._running.tag != tag, timeout_ms / 1000)

    @property
    def fenced(self) -> bool:
        """True if the running batch may not be committed any more."""
        with self._changed:
            return self._running is not None and self._running.fenced != ""

    # these hold the condition, or take it briefly

    def _batch(self) -> Running:
        if self._running is None:
            raise InvariantError("there is no running batch")
        return self._running

    def _still_held(self, batch: Running) -> list[TopicPartition]:
        """Return the batch's partitions that are still held by the starts with which it began."""
        return [each for each, start in batch.starts.items() if self._held_by(each, start)]

    def _held_by(self, partition: TopicPartition, start: int) -> bool:
        hold = self._holds.get(partition)
        return hold is not None and hold.start == start

    def _reading(self, partitions: Collection[TopicPartition]) -> str | None:
        """Return the tag of the running batch if it reads one of these by the start that holds it now."""
        with self._changed:
            batch = self._running
            if batch is None:
                return None
            reads = any(each in batch.starts and self._held_by(each, batch.starts[each]) for each in partitions)
            return batch.tag if reads else None

    def _end_early(self, tag: str, why: str) -> None:
        """Fence the batch, and wait for its end."""
        if self.fence(tag, why):
            self.await_end(tag, self._limits.cancel_wait_ms)

    def _drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Drop these holds. Return the positions that are surely committed and that no batch reads any more."""
        with self._changed:
            reading = self._running.starts if self._running is not None else {}
            final = {}
            for each in partitions:
                hold = self._holds.pop(each, None)
                if hold is not None and hold.sure and reading.get(each) != hold.start:
                    final[each] = hold.position
            self._notify()
            return final

    def _notify(self) -> None:
        self._change += 1
        self._changed.notify_all()
