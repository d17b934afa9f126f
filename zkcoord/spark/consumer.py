"""`SparkConsumer`: a member of a group that reads its partitions with Spark, batch by batch, in the driver program.

    process(df, batch) ◄── loop (batch thread) ──► BatchGuard ◄── commands (worker thread of the membership)

Everything is warmed up before the consumer registers: the first batch of a session takes seconds, and a registered
consumer that does not obey commands delays its group.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from zkcoord.core.given import given_number
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError
from zkcoord.metrics.batches import batch_metrics
from zkcoord.option_help import with_options
from zkcoord.signals import Handlers, at_signals
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.driver.batch_guard import BatchGuard
from zkcoord.spark.driver.failures import error_line
from zkcoord.spark.driver.loop import DriverLoop
from zkcoord.spark.driver.watch import CommandTimes
from zkcoord.spark.options import Choices, Options, options_of
from zkcoord.spark.ports import Dependencies, Jobs, Limits, LogEnds, Membership, Process, Reader, Stopped
from zkcoord.spark.progress import Metrics, Reports, log_event
from zkcoord.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANCEL_REPEAT_MS = 100  # a cancellation reaches only active jobs; a batch that is still planning has none
AT_STOP = "the consumer was told to stop at once (at_stop)"
AGAIN = "Ctrl-C came a second time"
PROBED_MAX = 64  # number of partitions in which the warm-up looks for a record


@with_options(Options, Choices.__annotations__)
class SparkConsumer:
    """One consumer of a group. `run` reads until `stop`, a signal, or a limit in its arguments. It can be run again.

    `topics` names the topics, or maps each to its number of threads. Instead of it, `include` or `exclude` is a regex,
    as for `zkcoord.Consumer`.

    What is read:
    `starting_offsets`: where a partition without an offset starts: "latest", "earliest", a datetime with a zone, or a
    mapping from topics (`"*"`: all others) to these.
    `out_of_range`: where reading continues if an offset is not in its log: as in `starting_offsets` (None), "earliest",
    "latest", or "fail": then `run` raises UsageError.
    `resume_from`: `delta_ends(table)` or `iceberg_ends(table, catalog=...)`: a partition starts where that table ends,
    not at the group's offset. Each partition that is moved is reported (`resumed_from_table`).
    `reader`: "kafka" is Spark's connector (a jar). "python" is confluent-kafka in Spark's Python workers (no jar; each
    task takes some tens of ms more, which matters most for many small batches). Both return the columns of Spark's own
    Kafka source; `include_headers` adds headers.
    `config` holds Kafka settings: `X` is for librdkafka and for Spark's connector, `kafka.X` (Spark's spelling) only
    for the reader (with reader "python" that is librdkafka, too), `librdkafka.X` only for librdkafka. Security settings
    are translated from either spelling to the other.

    How much is read: at most `max_offsets_per_batch`, and fewer when batches take longer than `max_batch_ms` (half of
    the rebalance timeout). A batch that is not full begins at the earliest `min_batch_ms` after the batch before began.
    `max_offsets_per_task` splits larger ranges over tasks. Ranges smaller than `min_offsets_per_task` share tasks of
    about that many offsets. (`write_parquet_ranges` needs the first unset, and below a path also the second.)

    How a batch ends: `at_stop` is for `stop` and signals, `at_rebalance` for a stop command that takes a partition of
    the running batch away. With "finish" the batch is finished first. With "cancel" nothing of it is committed, and it
    is read again.

    What is read again: a batch's ranges are announced before it is processed. After a crash or a cancellation the next
    owner of these partitions first processes exactly these ranges (`batch.replayed`). `announce=False` saves the
    announcement, which is one write to ZooKeeper for each batch; then unfinished ranges are divided into batches anew.

    What is reported: `on_report(report)` is called on the thread of `run` after each committed batch; `metrics` sums
    up. `measure_bytes` makes Spark count rows and bytes exactly, which takes time.

    `warm_up(df)` replaces the write to nowhere that warms the session. Its DataFrame has one record or none. Pass a
    function that uses Python workers if `process` does.

    At-least-once: a batch is committed after `process` has returned. The committed offset is the batch's end; the
    number of rows does not count. With a sink keyed by ranges (`write_parquet_ranges`) or offsets (`write_sql`) it is
    effectively once.
    """

    def __init__(
        self,
        spark: SparkSession,
        zookeeper: str,
        bootstrap_servers: str,
        group: str,
        topics: Sequence[str] | Mapping[str, int] = (),
        *,
        dependencies: Dependencies | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        """`zookeeper` is `host:port[,host:port…][/chroot]`. Times are in ms. Raises UsageError for values that can
        never work."""
        options = options_of(choices)
        options.check(topics)
        if dependencies is None:
            dependencies = RealDependencies(spark, zookeeper, bootstrap_servers, group, topics, options)
            dependencies.check()
        self._topics = tuple(topics)
        self._options = options
        self._group, self._isolation = group, options.kafka().isolation
        self._dependencies: Dependencies = dependencies
        self._reports = Reports(options.on_report)
        self._lock = threading.RLock()  # a signal's handler may call `stop` while `run` has it
        self._guard: BatchGuard | None = None  # of the run under way
        self._stopping = False  # `stop` was called for the run under way, or for the next one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def metrics(self) -> Metrics:
        """Sums over all runs of this consumer."""
        return self._reports.metrics

    def stop(self, *, cancel: bool | None = None, why: str = AT_STOP) -> None:
        """Ask `run` to finish its batch, commit, release and leave. With `cancel` it drops the batch. Returns at once.

        Any thread may call it, any number of times. `at_stop` is the default of `cancel`. `why` is logged with a
        dropped batch. Without a run under way, the next run returns at once.
        """
        with self._lock:
            self._stopping = True
            if self._guard is not None:
                drops = self._options.at_stop == "cancel" if cancel is None else cancel
                self._guard.leave(cancel=why if drops else None)

    def run(self, process: Process, max_batches: int | None = None, idle_timeout_ms: int | None = None) -> int:
        """Join the group and hand each batch to `process(df, batch)`. Return the number of committed batches.

        It ends by `stop`, by SIGTERM or the first SIGINT (on the main thread), after `max_batches`, or when there was
        nothing to read (no records, or no partitions) for `idle_timeout_ms`. It always leaves the group. A second
        SIGINT drops the batch and raises KeyboardInterrupt; a third goes to the program's own handler. An error of
        `process` is raised here, with its batch uncommitted. Raises UsageError without the connector, for wrong
        settings and for refused credentials, and UnavailableError if Kafka does not answer before the group is joined.
        """
        if not callable(process):
            raise UsageError(f"process is {process!r}; it must be a function of a DataFrame and a Batch")
        for name, value in (("max_batches", max_batches), ("idle_timeout_ms", idle_timeout_ms)):
            if value is not None:
                given_number(name, value)
        jobs = self._dependencies.jobs()
        run = _Run(jobs, self._options, self._dependencies.limits)
        with self._lock:
            if self._guard is not None:
                raise UsageError("this consumer runs already; make another one")
            self._guard = run.guard
            if self._stopping:
                run.guard.leave()
        try:
            with ExitStack() as stack, _stop_at_signals(self.stop):
                log_ends = self._dependencies.log_ends()
                stack.callback(log_ends.close)
                reader = self._dependencies.reader()
                reader.of_cluster(lambda: log_ends.cluster_id)
                self._warm_up(run.guard, reader, log_ends)
                stack.callback(run.join_cancellers)
                return self._joined(run, process, log_ends, reader, max_batches, idle_timeout_ms)
        finally:
            with self._lock:
                self._guard = None
                self._stopping = False

    def _joined(
        self,
        run: _Run,
        process: Process,
        log_ends: LogEnds,
        reader: Reader,
        max_batches: int | None,
        idle_timeout_ms: int | None,
    ) -> int:
        """Run the loop as a member."""
        if run.guard.view().leaving:
            return 0
        membership = self._dependencies.membership(
            on_start=run.on_start,
            on_stop=run.on_stop,
            on_lost=run.on_lost,
            on_replay=run.guard.replay,
            reset=partial(self._options.starts().positions, log_ends),
            cluster_id=lambda: log_ends.cluster_id,
        )
        run.allowed = membership.allowed

        def ready() -> bool:  # a lost batch that still hangs would block any other reading
            return not run.guard.fenced

        membership.join_when(ready, self._options.stop_needs_ms())
        self._reports.shown = self._dependencies.progress()
        loop = DriverLoop(
            self._options,
            self._group,
            self._dependencies,
            guard=run.guard,
            membership=membership,
            log_ends=log_ends,
            reader=reader,
            jobs=run.jobs,
            progress=self._reports,
            command_times=run.times.take,
        )
        with ExitStack() as stack:
            stack.enter_context(batch_metrics(self._options.metrics, self._group, lambda: self.metrics))
            stack.callback(self._reports.close)
            stack.push(_leave(membership))
            stack.callback(run.guard.leave_off)  # otherwise leaving would wait for a batch that is over
            membership.start()
            return loop.run(process, max_batches, idle_timeout_ms)

    def _warm_up(self, guard: BatchGuard, reader: Reader, log_ends: LogEnds) -> None:
        """Process a first batch whose result is discarded, with the record that `_probe` finds.

        (A first real batch of 8 partitions takes 2.8 to 3.7 s in a cold session, 1.4 s after a warm-up of Spark alone,
        0.6 s after an empty range, 0.4 s after one record.)
        """
        probe = self._probe(log_ends)
        limits = self._dependencies.limits
        end = time.monotonic() + limits.warm_up_ms / 1000
        while True:
            frame = reader.read(probe)  # also without a topic this shows whether there is a connector
            if not probe or guard.view().leaving:
                return
            try:
                (self._options.warm_up or _to_nowhere)(frame)
                return
            except Exception as error:
                lacking = reader.lacks(error)
                if lacking is not None:
                    raise UsageError(lacking) from error
                if not reader.away(error):
                    raise
                if time.monotonic() >= end:
                    raise UnavailableError(f"Kafka does not deliver, try again: {error_line(error)}") from error
            time.sleep(limits.away_wait_ms[0] / 1000)  # a broker may not know a topic yet that others know

    def _probe(self, log_ends: LogEnds) -> tuple[OffsetRange, ...]:
        """Return the last record of a topic that is read; an empty range if there is none; nothing without a topic.

        This is the first question to Kafka. If Kafka refuses it, the user is told before the group is joined.
        """
        existing = log_ends.partitions()
        topics = {each.topic for each in existing}
        for topic in sorted({*self._topics} - topics):  # it may be created later
            text = f"nothing to warm up with: Kafka has no topic {topic!r}; check its name and your rights"
            log_event(logging.WARNING, "topic_missing", text, topic=topic)
        read = {*self._options.asked_for(self._topics, sorted(topics))}
        partitions = [each for each in existing if each.topic in read][:PROBED_MAX]
        starts, _ = log_ends.ask_offsets(partitions, "earliest", None, None)
        ends, failed = log_ends.ask_offsets(partitions, "latest", self._isolation, None)
        for each in sorted(starts.keys() & ends.keys(), key=lambda one: (starts[one] >= ends[one], one)):
            return (OffsetRange(each.topic, each.partition, max(starts[each], ends[each] - 1), ends[each]),)
        # otherwise the partition is new, or is being deleted
        if failed and not isinstance(failed[min(failed)], UnknownPartitionError):
            raise failed[min(failed)]
        return ()


class _Run:
    """State that one `run` shares with the membership's worker thread."""

    def __init__(self, jobs: Jobs, options: Options, limits: Limits) -> None:
        self.jobs = jobs
        self.times = CommandTimes()
        self.guard = BatchGuard(self._cancel, limits)
        self.allowed: Callable[[TopicPartition], bool] = lambda partition: False  # the membership's, once it is made
        self._options = options
        self._cancellers: list[threading.Thread] = []

    def on_start(self, starting: Starting) -> None:
        """Obey a start."""
        with self.times.measuring("drain"):
            self.guard.start(starting)

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Obey a loss."""
        with self.times.measuring("drain"):
            self.guard.lose(partitions)

    def on_stop(self, partitions: tuple[TopicPartition, ...], stopped: Stopped) -> Mapping[TopicPartition, int]:
        """Obey a stop: wait for the batch that reads these, at most for the rebalance timeout. Partitions that no batch
        reads are passed to `stopped` at once."""
        with self.times.measuring("acknowledge"):
            return self.guard.stop(
                partitions,
                self._options.rebalance_timeout_ms,
                self.allowed,
                stopped,
                cancel=self._options.at_rebalance == "cancel",
            )

    def _cancel(self, tag: str) -> None:
        canceller = threading.Thread(target=self._cancel_until_back, args=(tag,), name=f"cancel-{tag}", daemon=True)
        canceller.start()
        # after its start: the batch may be over, and its thread may be joining, at any moment
        self._cancellers.append(canceller)

    def _cancel_until_back(self, tag: str) -> None:
        while True:
            try:
                self.jobs.cancel(tag)
            except Exception as error:  # Spark may be gone; the batch thread will report it
                log_event(logging.DEBUG, "cancel_failed", f"{tag} could not be cancelled: {error}")
            if self.guard.await_end(tag, CANCEL_REPEAT_MS):
                return

    def join_cancellers(self) -> None:
        """Wait for the threads that cancel batches. Each ends with its batch, which is over."""
        for each in self._cancellers:
            each.join()


def _to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _leave(membership: Membership) -> Callable[..., bool]:
    """Return an exit that stops the membership. If that fails, the error does not hide the one that ended the loop."""

    def leave(kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        try:
            membership.stop()
        except Exception as failure:
            if error is None:
                raise
            log_event(logging.WARNING, "leave_failed", f"the group was not left cleanly: {failure}")
        return False

    return leave


@contextmanager
def _stop_at_signals(stop: Callable[..., None]) -> Iterator[None]:
    """Call `stop` at SIGTERM and SIGINT within this block, on a thread of its own, since `stop` takes locks.

    The second SIGINT drops the batch, raises KeyboardInterrupt at the end, and restores the earlier handler. (PySpark's
    handler raises inside a call to the JVM; the next call would then receive the answer of that one.)
    """
    interrupts = 0

    def handle(number: int, before: Handlers) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        again = number == signal.SIGINT and interrupts > 1
        if again:
            signal.signal(number, before[signal.SIGINT])
        threading.Thread(target=act, args=[number, again], name="stop-at-signal", daemon=True).start()

    def act(number: int, again: bool) -> None:
        if again:
            log_event(logging.INFO, "stopping", "breaks the batch off; Ctrl-C again does not wait for its end")
            stop(cancel=True, why=AGAIN)
            return
        if number == signal.SIGINT:
            log_event(logging.INFO, "stopping", "stops when the batch that runs is done; Ctrl-C again breaks it off")
        stop()

    with at_signals((signal.SIGTERM, signal.SIGINT), handle):
        yield
    if interrupts > 1:
        raise KeyboardInterrupt
