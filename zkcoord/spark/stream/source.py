"""`readStream.format("zkcoord")`: a structured streaming source that is a member of a group.

    register_source(spark)
    rows = spark.readStream.format("zkcoord").option("zookeeper", …).option("kafka.bootstrap.servers", …) \\
        .option("group", "etl").option("subscribe", "clicks").load()

It is the driver loop of `SparkConsumer`, whose `process` passes the planned ranges to Spark and waits. The membership
is in the Python process in which Spark runs the source: a child of the JVM, one for each query.

When Spark calls `latestOffset` again, the batch before is complete. Then that batch is committed, commands are obeyed,
and the next batch is planned. (Spark's `commit` comes later, and not for a query's last batch.)
"""

from __future__ import annotations

import logging
import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from zkcoord.clock import mono_ms
from zkcoord.core.one_cluster import two_clusters
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError, ZkcoordError
from zkcoord.logs import NOTICE
from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.ports import Dependencies
from zkcoord.spark.progress import in_vain, log_event, tell_in_vain
from zkcoord.spark.ranges import OffsetRange, offsets_in, same_topic
from zkcoord.spark.readers.ranges import tasks_of
from zkcoord.spark.stream.dependencies import StreamDependencies, StreamPositions
from zkcoord.spark.stream.handover import Handover
from zkcoord.spark.stream.offsets import EMPTY, Offset, check_group, offset_of, ranges_in, to_read, within
from zkcoord.spark.stream.options import StreamOptions, consumer_choices

T = TypeVar("T")
ASK_WAIT_MS = 1_000  # while nothing is held, or Kafka cannot be reached; `query.stop()` waits for it
UNHELD_WAIT_MS, AT_ONCE_MS = 100, 50
"""Without a partition, a query whose triggers have an interval gets an answer soon, since Spark warns when such a query
falls behind. Spark asks other queries again after 10 ms (`spark.sql.streaming.pollingDelay`): they get an answer after
ASK_WAIT_MS."""
MEMBER_POLL_MS = 20
LEAVE_WAIT_MS = 15_000  # for offsets, releases and the session's end; longer than `Consumer.stop` gives its threads
AT_END = "the query ends; whether Spark has completed it, the query's next run knows from its checkpoint"
TOO_EARLY = (
    "the query planned a batch before it knew its checkpoint, whose records it would read again: run it with "
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled=false, which is Spark's default"
)


class Source:
    """The source of one query. All methods belong to the thread on which Spark calls it."""

    def __init__(
        self, chosen: StreamOptions, dependencies: Dependencies | None = None, run_id: str | None = None
    ) -> None:
        """Connects to nothing before the first `latest`. `dependencies` and `run_id` (unique) are made if they are not
        given."""
        self._chosen = chosen
        self._dependencies: Dependencies = dependencies or chosen.dependencies()
        self._run_id = run_id or uuid.uuid4().hex[:12]
        self._handover = Handover()
        self._known = StreamPositions()
        self._consumer: SparkConsumer | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._was_away = False  # Kafka could not be reached at the query's start
        self._told_away = False  # and its return was not logged yet
        self._answered_ms = 0  # when Spark last got an answer
        self._last: Offset = EMPTY  # the offset that Spark has; returned again while there is nothing new
        self._runs = {EMPTY["run"], self._run_id}  # runs whose offsets were known when the first batch was planned

    def latest(self, start: Offset | None) -> Offset:
        """Commit the batch before, which is complete; obey commands; plan the next batch. Returns the last offset if
        there is nothing to read.

        `start` is the last offset as Spark knows it (Spark 4.2 and newer). Raises the error that ended the membership.
        """
        if self._thread is None:
            self._last = start or self._last
            self._runs.add(self._last["run"])
            self._known.recover(self._ranges(self._last))
            dependencies = self._begin()
            self._await_member(dependencies)
            found = self._next(self._chosen.join_wait_ms)
            if not self._known.held:
                tell_in_vain(self._chosen.group, dependencies.consumer_id, self._chosen.join_wait_ms)
            return found
        self._handover.complete()
        return self._last if self._known.enough else self._next(self._wait_ms)

    @property
    def _wait_ms(self) -> int:
        """How long to wait for a batch."""
        at_once = mono_ms() - self._answered_ms < AT_ONCE_MS
        return ASK_WAIT_MS if self._known.held or at_once else UNHELD_WAIT_MS

    def _await_member(self, dependencies: StreamDependencies) -> None:
        """Wait until the query is a member of its group, or fail. Otherwise a query that reads the present records and
        ends would end successfully without a record."""
        wait_ms = self._dependencies.limits.member_wait_ms
        deadline_ms: int | None = None  # not set before Kafka has answered, for which the other thread waits
        while dependencies.consumer_id is None:
            if dependencies.joins and deadline_ms is None:
                deadline_ms = mono_ms() + wait_ms
            if deadline_ms is not None and mono_ms() >= deadline_ms:
                raise UnavailableError(in_vain(None, wait_ms))
            self._handover.await_end(MEMBER_POLL_MS)

    def _patiently(self, ask: Callable[[], T], begun: Callable[[], bool] = lambda: False) -> T:
        """Return the result of `ask`. At the query's start, if Kafka cannot be reached, `ask` is repeated for
        `joinWaitMs` and at least `member_wait_ms`, so that an outage does not end a query that begins.

        Raises `ask`'s UnavailableError when that time is over, when the query is stopped, or when `begun()` says that
        the start is over.
        """
        limits = self._dependencies.limits
        patience_ms = max(self._chosen.join_wait_ms, limits.member_wait_ms)
        deadline_ms = mono_ms() + patience_ms
        while True:
            try:
                answer = ask()
            except UnavailableError as error:
                if begun() or mono_ms() >= deadline_ms or self._stopped.wait(limits.kafka_again_ms / 1000):
                    raise
                if not self._was_away:
                    text = f"the query begins when Kafka answers, which is waited for {patience_ms} ms: {error}"
                    log_event(logging.WARNING, "kafka_away", text, group=self._chosen.group)
                    self._told_away = True
                self._was_away = True
                continue
            if self._told_away:
                self._told_away = False
                log_event(NOTICE, "kafka_back", "Kafka answers: the query begins", group=self._chosen.group)
            return answer

    def _next(self, wait_ms: int) -> Offset:
        batch = self._handover.next(wait_ms)
        if batch is not None:
            self._last = offset_of(self._run_id, self._chosen.group, batch, self._known.ends)
        self._answered_ms = mono_ms()
        return self._last

    def _ranges(self, offset: Offset) -> tuple[OffsetRange, ...]:
        """Return the ranges in an offset of this group's query. Raises UsageError for any other offset."""
        found = ranges_in(offset)
        check_group(offset, self._chosen.group)
        return found

    def tasks(self, start: Offset, end: Offset) -> list[tuple[OffsetRange, ...]]:
        """Return the ranges for the tasks of the batch from `start` to `end`. If rows are ranges, all ranges are whole.

        When `start` equals `end`, Spark tells where a query continues after a restart. Raises UsageError if Spark tells
        it too late, and for another query's checkpoint.
        """
        for each in (start or EMPTY, end):
            self._ranges(each)
        if self._thread is None:
            self._last = end
        elif not {(start or EMPTY)["run"], end["run"]} <= self._runs:
            raise UsageError(TOO_EARLY)
        planned = ranges = to_read(start or EMPTY, end)
        if self.runs_again(end):
            ranges = self._patiently(lambda: self._still_there(planned))
        if self._chosen.ranges:  # Spark's connector splits them for its tasks
            return [ranges] if ranges else []
        options = self._chosen.options
        return tasks_of(ranges, options.max_offsets_per_task, options.min_offsets_per_task)

    def runs_again(self, end: Offset) -> bool:
        """True for a batch that an earlier run of the query may have processed."""
        return bool(end["run"] != self._run_id)

    @property
    def cluster_id(self) -> str | None:
        """The cluster whose records the planned tasks read. None: it is not known."""
        return self._known.cluster_id()

    def _still_there(self, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        """Return the part of an earlier process's batch that the logs still have. Raises UsageError if that is not
        everything, unless the options allow it."""
        if not ranges:
            return ()
        partitions, cluster_id = [each.topic_partition for each in ranges], self._dependencies.tree_cluster()
        numbered = {each.topic for each in ranges if each.incarnation}
        present = self._dependencies.incarnations(numbered) if numbered else {}
        client = self._dependencies.log_ends()
        try:
            client.partitions()  # its answer tells the cluster
            confused = two_clusters(client.cluster_id, cluster_id, self._chosen.bootstrap_servers)
            if confused is not None:
                raise confused
            try:
                # this waits for a broker that has just come back
                starts = client.reset_positions(partitions, "earliest")
            except UnknownPartitionError as gone:
                self._raise_unless_gone(gone)
                starts = client.reset_positions(set(partitions) - gone.partitions, "earliest")
            ends, failed = client.ask_offsets(partitions, "latest", "read_uncommitted", None)
            told = client.cluster_id
            self._known.cluster_id = lambda: told
        finally:
            client.close()
        left = []
        for each in ranges:
            at = each.topic_partition
            if at in failed:
                self._raise_unless_gone(failed[at])
            found = within(each, starts.get(at, each.end), ends.get(at, each.start))
            again = not same_topic(each.incarnation, present.get(each.topic, 0))
            if again:  # other records have these offsets now
                found = within(each, each.end, each.end)
            if found != each:
                self._tell_gone(each, found, ", since the topic was deleted and created again" if again else "")
            left.append(found)
        return tuple(each for each in left if each.start < each.end)

    def _raise_unless_gone(self, error: ZkcoordError) -> None:
        """Raise `error`, unless Kafka says that it has no such partition, and could be reached all the time. (A broker
        that comes back knows no partition at first.)"""
        if not isinstance(error, UnknownPartitionError):
            raise error
        if self._was_away:
            raise UnavailableError(f"Kafka was away, and perhaps does not know its topics yet: {error}") from error

    def _tell_gone(self, each: OffsetRange, found: OffsetRange, why: str) -> None:
        left = f"{offsets_in([found])} offsets are left of {each}{why}"
        text = f"the last batch of the checkpoint cannot be read again as it was: {left}"
        if self._chosen.options.out_of_range == "fail":
            raise UsageError(f"{text}. Set the option failOnDataLoss=false to go on with these")
        names = [str(each.topic_partition)]
        log_event(logging.WARNING, "records_gone", text, group=self._chosen.group, partitions=names)

    def end_at_present(self) -> None:
        """Let the query read the present records, and end (Spark 4.2 and newer)."""
        self._known.end_at_present()

    def log_ends(self) -> Mapping[str, Any] | None:
        """Return the last known ends of the held partitions' logs, for `query.lastProgress`."""
        found: dict[str, dict[str, int]] = {}
        for each, end in sorted(self._known.ends.copy().items()):
            found.setdefault(each.topic, {})[str(each.partition)] = end
        return found or None

    def stop(self) -> None:
        """Leave the group. Batches that Spark has not completed are not committed."""
        self._stopped.set()
        if self._consumer is None or self._thread is None:
            return
        self._handover.close()
        self._consumer.stop(cancel=True, why=AT_END)
        self._thread.join(LEAVE_WAIT_MS / 1000)

    def _begin(self) -> StreamDependencies:
        chosen = self._chosen
        dependencies = StreamDependencies(self._dependencies, chosen.group, self._handover, self._known)
        self._consumer = SparkConsumer(
            None,
            chosen.zookeeper,
            chosen.bootstrap_servers,
            chosen.group,
            chosen.topics,
            dependencies=dependencies,
            **consumer_choices(chosen.options),
        )
        run = partial(self._run, self._consumer, dependencies)
        self._thread = threading.Thread(target=run, name="zkcoord-stream", daemon=True)
        self._thread.start()
        return dependencies

    def _run(self, consumer: SparkConsumer, dependencies: StreamDependencies) -> None:
        try:
            self._patiently(lambda: consumer.run(self._handover.process), lambda: dependencies.joins)
        except BaseException as error:
            self._handover.ended(error)
        else:
            self._handover.ended(None)


def leave_at_sigterm() -> None:
    """At SIGTERM end this process as a program ends, with `stop`. (Spark sends SIGTERM twice.)"""

    def leave(number: int, frame: FrameType | None) -> None:
        finish_in_peace()
        raise SystemExit(0)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)


def finish_in_peace() -> None:
    """Ignore SIGTERM while the group is being left."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
