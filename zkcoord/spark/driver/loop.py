"""The driver loop: plan ranges, announce them, let the user process them, commit, repeat. It runs on the thread that
calls `run`.

Each turn decides again, from what is held now (`BatchGuard`) and what the log has. A turn ends with a value of `Turn`.
Only COMMITTED moves a position.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise

from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UnknownPartitionError
from zkcoord.spark.driver.announcing import Announcer, Said, announced_ranges
from zkcoord.spark.driver.batch_guard import BatchGuard, End, Hold, View
from zkcoord.spark.driver.cluster_watch import ClusterWatch
from zkcoord.spark.driver.failures import Failures
from zkcoord.spark.driver.outlog import ASK_TIMEOUT_MS, OutOfLog
from zkcoord.spark.driver.pace import Pace
from zkcoord.spark.driver.resuming import TableStart
from zkcoord.spark.driver.watch import ProgressHeartbeat, slow_batch_alarm
from zkcoord.spark.options import Options
from zkcoord.spark.ports import Dependencies, Jobs, LogEnds, Membership, Process, Progress, Reader, Report
from zkcoord.spark.progress import log_event, tell_in_vain
from zkcoord.spark.ranges import Batch, OffsetRange, batch_id, describe, offsets_in, plan_ranges

IDLE_POLL_MS = 50  # below the fixed cost of a tiny batch (about 70 ms); it makes 20 requests of 1 ms in a second
ALLOWED_POLL_MS = 10  # a start is acknowledged some ms after it was told; asking costs nothing
MEMBER_CHECK_MS = 1_000  # a membership that ended by itself sends no command, so it must be checked
COMMIT_RETRY_MS = 200  # the session reconnects or ends within its timeout, which is some seconds
# after a refused commit the command that explains it is on its way; do not read again before it comes
FENCED_WAIT_MS = 2_000


class Turn(Enum):
    """The result of a turn of the loop."""

    COMMITTED = "committed"
    AGAIN = "again"  # the plan's partitions are not held any more, or positions were moved: plan again at once
    LOST = "lost"  # the batch was dropped
    NOTHING_HELD = "nothing held"
    NOT_ALLOWED = "not allowed"  # held, but its start is not acknowledged yet, or the lease does not hold
    NO_RECORDS = "no records"
    TOO_FEW = "too few"  # there are only a few records, and the batch before began a short time ago
    AWAY = "away"  # Kafka or ZooKeeper did not answer


IDLE = (Turn.NOTHING_HELD, Turn.NOT_ALLOWED, Turn.NO_RECORDS, Turn.AWAY)


WAIT_MS = {
    Turn.NOTHING_HELD: MEMBER_CHECK_MS,
    Turn.NOT_ALLOWED: ALLOWED_POLL_MS,
    Turn.NO_RECORDS: IDLE_POLL_MS,
    Turn.TOO_FEW: IDLE_POLL_MS,
}


class DriverLoop:
    """One run of one consumer. All its methods belong to the batch thread."""

    def __init__(
        self,
        options: Options,
        group: str,
        dependencies: Dependencies,
        *,
        guard: BatchGuard,
        membership: Membership,
        log_ends: LogEnds,
        reader: Reader,
        jobs: Jobs,
        progress: Progress,
        command_times: Callable[[], tuple[int, int]],
    ) -> None:
        """`command_times` returns the ms since the last call that starts and losses took, and those that stops took."""
        self._options, self._group = options, group
        self._isolation = options.kafka().isolation
        self._guard, self._membership, self._log_ends = guard, membership, log_ends
        self._reader, self._jobs = reader, jobs
        self._meter = dependencies.meter()
        self._progress = progress
        self._command_times = command_times
        self._await_turn = dependencies.await_turn
        self._limits = limits = dependencies.limits
        self._announcer = Announcer(membership, guard, group)
        self._cluster = ClusterWatch(log_ends, limits.anew_ms if options.reader == "kafka" else None)
        self._out_of_log = OutOfLog(log_ends, membership, guard, options.resets())
        self._table_start = TableStart(options.resume_from, group, membership, guard)
        self._failures = Failures(reader, self._out_of_log, self._isolation, group, limits.away_batches_max)
        self._pace = Pace(
            max_offsets=options.max_offsets_per_batch,
            min_batch_ms=options.min_batch_ms,
            max_batch_ms=options.longest_batch_ms(),
        )
        self._run_id = uuid.uuid4().hex[:12]  # so that two consumers of one session never cancel each other's batches
        self._pulse = ProgressHeartbeat(self._meter, membership, limits.look_ms)
        self._seq = 0
        self._end = End.UNTRIED  # how far the commit of the batch under way has come
        self._away_ms = 0
        self._untold: frozenset[TopicPartition] = frozenset()
        self._given = False  # True once a partition was given

    def run(self, process: Process, max_batches: int | None = None, idle_timeout_ms: int | None = None) -> int:
        """Turn until told to leave, `max_batches` are committed, or nothing could be read for `idle_timeout_ms`.

        Returns the number of batches committed. Raises what `process` raises, with its batch uncommitted, and the error
        that ended the membership.
        """
        committed = 0
        began_ms = busy_ms = mono_ms()
        while max_batches is None or committed < max_batches:
            self._await_turn()
            view = self._guard.view()
            if view.leaving:
                break
            if self._membership.error is not None:
                raise self._membership.error
            self._given = self._given or bool(view.holds)
            turn = self._turn(process, view)
            if turn is Turn.COMMITTED:
                committed += 1
            if turn not in IDLE:
                busy_ms = mono_ms()
                self._away_ms = 0
                if turn is Turn.TOO_FEW:
                    self._guard.await_change(view.change, WAIT_MS[turn])
                continue
            left_ms = None if idle_timeout_ms is None else busy_ms + idle_timeout_ms - mono_ms()
            if left_ms is not None and left_ms <= 0:
                if not self._given:
                    tell_in_vain(self._group, self._membership.consumer_id, mono_ms() - began_ms)
                break
            wait_ms = self._wait_ms(turn)
            self._guard.await_change(view.change, wait_ms if left_ms is None else min(wait_ms, left_ms))
        return committed

    def _wait_ms(self, turn: Turn) -> int:
        """Return how long to wait after an idle turn. A command ends the wait early."""
        if turn is Turn.AWAY:
            first_ms, longest_ms = self._limits.away_wait_ms
            self._away_ms = min(max(first_ms, self._away_ms * 2), longest_ms)
            return self._away_ms
        self._away_ms = 0
        return WAIT_MS[turn]

    # one turn

    def _turn(self, process: Process, view: View) -> Turn:
        began_ns = time.monotonic_ns()
        held = self._allowed(view)
        if held and len(held) < len(view.holds):
            held = self._allowed(view)  # partitions of one start are allowed at the same moment, and are read together
        if not view.holds:
            self._progress.unheld()
            return Turn.NOTHING_HELD
        if not held:
            return Turn.NOT_ALLOWED
        leased = view._replace(holds=held)
        self._pace.max_batch_ms = self._options.longest_batch_ms(self._membership.stop_within_ms)
        try:
            ends = self._ends(leased)
            if not ends:
                return Turn.AWAY
            if self._table_start.apply(leased) or self._out_of_log.repair(leased, ends, self._isolation):
                return Turn.AGAIN
        except (UnavailableError, UnknownPartitionError, FencedError) as error:
            self._tell(logging.WARNING, "planning_failed", f"no batch can be planned: {error}")
            return Turn.AWAY
        replays = announced_ranges(held, ends, self._pace.offsets)
        fresh = {each: hold.position for each, hold in held.items() if hold.announced is None}
        ranges = replays or plan_ranges(fresh, ends, self._pace.offsets, self._seq)
        lag = sum(max(0, ends[each] - hold.position) for each, hold in held.items() if each in ends)
        self._pulse.report(lag)
        if not ranges:
            self._progress.idle(lag)
            return Turn.NO_RECORDS
        if not replays and self._pace.wait_ms(offsets_in(ranges), mono_ms()) > 0:
            return Turn.TOO_FEW
        return self._batch(process, leased, self._announcer.fitting(ranges, self._seq), lag, began_ns)

    def _allowed(self, view: View) -> dict[TopicPartition, Hold]:
        return {each: hold for each, hold in view.holds.items() if self._membership.allowed(each)}

    def _ends(self, view: View) -> Mapping[TopicPartition, int]:
        """Return the ends of those partitions whose leader answers. Logs once which leaders do not answer, and when
        they do again."""
        ends, failed = self._log_ends.ask_offsets(view.holds, "latest", self._isolation, ASK_TIMEOUT_MS)
        if failed.keys() != self._untold:
            self._untold = frozenset(failed)
            names = [str(each) for each in sorted(failed)]
            text = (
                f"{len(names)} partitions are not read for now: {failed[min(failed)]}"
                if failed
                else "all logs answer again"
            )
            self._tell(logging.WARNING if failed else logging.INFO, "log_ends", text, partitions=names)
        return ends

    def _batch(self, process: Process, view: View, ranges: tuple[OffsetRange, ...], lag: int, began_ns: int) -> Turn:
        tag = f"zkcoord-{self._group}-{self._run_id}-{self._seq}"
        kept = self._guard.begin(tag, ranges, view)
        if not kept:
            return Turn.AGAIN
        kept = tuple(each._replace(incarnation=self._membership.incarnation(each.topic_partition)) for each in kept)
        batch = Batch(
            id=batch_id(kept),
            seq=self._seq,
            generation=self._membership.generation,
            ranges=kept,
            replayed=view.holds[kept[0].topic_partition].announced is not None,
            group=self._group,
        )
        self._seq += 1
        not_begun = self._announce(view, batch)
        if not_begun is not None:
            return not_begun
        self._pace.began(mono_ms())
        try:
            with self._pulse.during(tag, lag):
                end, why, at_ns = self._process_and_commit(process, batch, tag)
        except Exception as error:
            if self._failures.unreachable(batch, error):
                return Turn.AWAY
            if not self._failures.explained(batch, error):
                raise
            return Turn.AGAIN
        if end is not End.COMMITTED:
            return self._lost(view, batch, end, why)
        self._failures.committed()
        lag = max(0, lag - offsets_in(kept))
        self._pulse.report(lag, offsets_in(kept))
        self._report(batch, tag, lag, (began_ns, *at_ns))
        return Turn.COMMITTED

    def _announce(self, view: View, batch: Batch) -> Turn | None:
        """Announce a batch that has begun. Returns None if it may read, else the turn's result."""
        if not self._options.announce:
            return None
        said = Said.FENCED
        try:
            said = self._announcer.announce(batch.ranges)
        finally:
            if said is not Said.ANNOUNCED:
                self._guard.finish(End.REFUSED if said is Said.REFUSED else End.UNTRIED, {})
        if said is Said.REFUSED:
            self._await_reason(view)
        if said is Said.ANNOUNCED:
            return None
        return Turn.AWAY if said is Said.AWAY else Turn.AGAIN

    def _report(self, batch: Batch, tag: str, lag: int, at_ns: tuple[int, ...]) -> None:
        """Report a committed batch, and adapt the size of the next ones to the time that it took."""
        plan_ms, process_ms, commit_ms = ((later - earlier) // 1_000_000 for earlier, later in pairwise(at_ns))
        rows, read_bytes = self._meter.read(tag)
        drain_ms, acknowledge_ms = self._command_times()
        report = Report(
            batch=batch,
            lag=lag,
            rows=rows,
            bytes=read_bytes,
            drain_ms=drain_ms,
            plan_ms=plan_ms,
            process_ms=process_ms,
            commit_ms=commit_ms,
            acknowledge_ms=acknowledge_ms,
        )
        self._progress.batch_done(report)
        if self._pace.ended(report.offsets, process_ms):
            self._tell(
                logging.WARNING,
                "batch_too_long",
                f"batch {batch.seq} took {process_ms} ms, more than {self._pace.max_batch_ms} ms "
                "(max_batch_ms, or half of what old consumers wait): "
                f"the next ones have at most {self._pace.offsets:,} offsets",
                batch=batch.id,
                took_ms=process_ms,
                max_offsets=self._pace.offsets,
            )

    def _process_and_commit(self, process: Process, batch: Batch, tag: str) -> tuple[End, str, tuple[int, int, int]]:
        """Process and commit a batch that has begun. Afterwards the batch is over in any case.

        Returns its result, why it was fenced, and when it was planned, processed and committed.
        """
        offsets = {each.topic_partition: each.end for each in batch.ranges}
        self._end = End.UNTRIED
        planned_ns = time.monotonic_ns()
        try:
            self._process(process, batch, tag)
            processed_ns = time.monotonic_ns()
            self._commit(batch, offsets)
        finally:
            why = self._guard.finish(self._end, offsets)
        return self._end, why, (planned_ns, processed_ns, time.monotonic_ns())

    def _process(self, process: Process, batch: Batch, tag: str) -> None:
        """Run the user's function. If the batch was fenced meanwhile, what it raises is not raised: such a batch is not
        committed."""
        description = f"zkcoord group {self._group} batch {batch.seq} ({batch.id[:8]}): {describe(batch.ranges)}"
        try:
            with (
                self._jobs.running(tag, description),
                slow_batch_alarm(batch, self._group, self._options.rebalance_timeout_ms),
            ):
                if not self._allowed_still(batch, tag):
                    return
                self._membership.reading(each.topic_partition for each in batch.ranges)
                process(self._meter.watch(self._reader.read(batch.ranges)), batch)
        except Exception as error:
            if not self._guard.fenced:
                raise
            self._tell(logging.DEBUG, "batch_cancelled", f"batch {batch.seq} ended with: {error}")

    def _allowed_still(self, batch: Batch, tag: str) -> bool:
        """False if a partition of the batch was lost since it was planned. Kafka and ZooKeeper were asked meanwhile, so
        the lease may have ended before the loss was handled: then this fences the batch."""
        if not all(self._membership.allowed(each.topic_partition) for each in batch.ranges):
            self._guard.fence(tag, "the lease ended before it was begun")
        return not self._guard.fenced  # a cancellation that came before the tag was known found nothing to cancel

    def _commit(self, batch: Batch, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the batch. A broken connection to ZooKeeper is waited for until the lease ends. A Kafka that does not
        tell whose records these were is waited for as well, but not while leaving."""
        while self._guard.claim():
            known = False
            try:
                self._cluster.confirm(batch.ranges)
                known = True
                self._end = End.UNKNOWN  # also if an exception ends the wait for the answer
                self._membership.commit(offsets)
            except FencedError as error:
                self._tell(logging.WARNING, "commit_refused", f"the batch is not committed: {error}")
                self._end = End.REFUSED
                return
            except UnavailableError as error:
                self._guard.commit_failed()
                if not known and self._guard.view().leaving:
                    self._tell(logging.WARNING, "commit_refused", f"the batch is read again: {error}")
                    return
                self._tell(logging.WARNING, "commit_delayed", f"the batch is not committed yet: {error}")
                self._guard.await_change(self._guard.view().change, COMMIT_RETRY_MS)
            else:
                self._end = End.COMMITTED
                return

    def _lost(self, seen: View, batch: Batch, end: End, why: str) -> Turn:
        """Log that a batch was dropped. After a refused commit, wait for the command that explains it."""
        self._progress.batch_lost()
        self._tell(
            logging.WARNING,
            "batch_lost",
            f"batch {batch.seq} of group {self._group} is not committed: {why or end.value}",
            batch=batch.id,
            seq=batch.seq,
            generation=batch.generation,
            ranges=[str(each) for each in batch.ranges],
        )
        if end is End.REFUSED:
            self._await_reason(seen)
        return Turn.LOST

    def _await_reason(self, seen: View) -> None:
        """Wait for the command that explains a refused write, unless it has come already."""
        now = self._guard.view()
        starts = {each: hold.start for each, hold in now.holds.items()}
        unexplained = any(starts.get(each) == hold.start for each, hold in seen.holds.items())
        if unexplained and not now.leaving:
            self._guard.await_change(now.change, FENCED_WAIT_MS)

    def _tell(self, level: int, event: str, text: str, **fields: object) -> None:
        log_event(level, event, text, group=self._group, **fields)
