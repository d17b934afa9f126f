"""A membership, a Kafka and a Spark that a test plays by hand: no server, no JVM, no time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError, ZkcoordError
from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.ports import Limits, Reader, Report
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.readers.kafka import how_to_add, is_unusable

DEADLINE_S = 120.0  # only what fails takes so long
Positions = Mapping[TopicPartition, int]


class CancelledJobError(Exception):
    """The error of a fake job that is cancelled."""


class FakeMembership:
    """A membership that a test plays with `give`, `take` and `lose`. Any thread plays the worker thread, one at a
    time."""

    generation = 7
    consumer_id: str | None = "g_here-1-aa"
    error: Exception | None = None
    stop_within_ms: int | None = None

    def __init__(
        self,
        world: World,
        on_start: Any,
        on_stop: Any,
        on_lost: Any,
        on_replay: Any,
        reset: Any,
        cluster_id: Any = None,
    ) -> None:
        self.world = world
        self.reset, self.cluster_id = reset, cluster_id
        self._on_start, self._on_stop, self._on_lost, self._on_replay = on_start, on_stop, on_lost, on_replay
        self.held: set[TopicPartition] = set()
        self.begun: set[TopicPartition] = set()  # records of these were handed out
        self._starts, self._started = 0, dict[TopicPartition, int]()  # so far; by which start each runs
        self._one_worker = threading.Lock()

    def start(self) -> None:
        self.world.events.append("join")
        self.give(self.world.given)
        self.world.joined.set()

    def stop(self) -> None:
        self.world.final = self.take(*sorted(self.held))
        self.world.events.append("leave")

    def report(self, progress: int, lag: int) -> None:
        """Note the progress that the consumer reports."""
        self.reported = (progress, lag)

    def reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a batch with records of these partitions begins."""
        self.begun.update(partitions)

    def join_when(self, ready: Callable[[], bool], stop_needs_ms: int = 0) -> None:
        self.ready, self.stop_needs_ms = ready, stop_needs_ms

    def stopped(self, partitions: Collection[TopicPartition], offsets: Positions) -> None:
        self.world.released.append({str(each): offsets.get(each) for each in sorted(partitions)})
        self.held -= set(partitions)
        self.world.early.set()

    def allowed(self, partition: TopicPartition) -> bool:
        return partition in self.held and self.world.leased

    def incarnation(self, partition: TopicPartition) -> int:
        return self.world.incarnation

    def commit(self, offsets: Positions, starts: Positions | None = None) -> None:
        for each in self.world.before_commit[:1]:
            self.world.before_commit.remove(each)
            each()
        if starts is not None and any(self._started.get(each) != number for each, number in starts.items()):
            raise FencedError("decided before these were started again")
        self.world.commits.append(dict(offsets))

    def announce(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        for each in self.world.before_announcement[:1]:
            self.world.before_announcement.remove(each)
            each()
        if len(ranges) > self.world.announced_max:
            raise UsageError("more than a status can hold")
        self.world.announced.append({str(each): span for each, span in ranges.items()})

    def give(self, positions: Positions, replay: Mapping[TopicPartition, tuple[int, int]] | None = None) -> None:
        with self._one_worker:
            self.held |= positions.keys()
            self._starts += 1
            self._started |= dict.fromkeys(positions, self._starts)
            if replay:
                self._on_replay(replay)
            self._on_start(Starting(positions, self._starts, dict.fromkeys(positions, self.world.incarnation)))

    def take(self, *partitions: TopicPartition) -> Positions:
        with self._one_worker:
            final: Positions = self._on_stop(partitions, self.stopped)
            self.held -= set(partitions)
            return final

    def lose(self, *partitions: TopicPartition) -> None:
        with self._one_worker:
            self.held -= set(partitions)
            self._on_lost(partitions)


class FakeFrame(tuple[OffsetRange, ...]):
    """The ranges."""


class FakeReader(Reader):
    """Its DataFrame is the tuple of ranges."""

    def read(self, ranges: Collection[OffsetRange]) -> Any:
        return FakeFrame(ranges)

    def lacks(self, error: Exception) -> str | None:
        return how_to_add("4.0.0", error) if is_unusable(error) else None

    def away(self, error: Exception) -> bool:
        return isinstance(error, UnavailableError)


class World:
    """Everything around one consumer, and what happened, in order."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.given: Positions = {}
        self.starts: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.at_time: dict[TopicPartition, int] = {}  # the offset that is found for any time
        self.high: dict[TopicPartition, int] | None = None  # ends with open transactions, if they differ
        self.away = False
        self.cluster_id: str | None = None  # as Kafka tells it
        self.named: str | None = None  # the cluster that the tree names
        self.incarnation = 0  # of every topic
        self.leased = True
        self.events: list[str] = []
        self.announced: list[dict[str, tuple[int, int]]] = []
        self.announced_max = 1_000
        self.commits: list[Positions] = []
        self.early = threading.Event()
        self.released: list[dict[str, int | None]] = []  # final offsets given before the stop was over
        self.before_announcement: list[Callable[[], None]] = []
        self.before_commit: list[Callable[[], None]] = []
        self.while_planning: list[Callable[[], None]] = []
        self.while_confirming: list[Callable[[], None]] = []  # called while the cluster is confirmed before a commit
        self.while_looking: list[Callable[[], None]] = []  # called while the cluster is asked through new connections
        self.looked: list[str] = []
        self.closed = 0  # how many of these were closed: the Kafka client, the progress
        self.reports: list[Report] = []
        self.lost = 0
        self.active: object = None
        self.final: Positions | None = None
        self.cancelled: list[str] = []
        self.joined = threading.Event()
        self.on_cancel: list[Callable[[], None]] = []
        self.idle_told = threading.Event()
        self.unheld_told = threading.Event()
        self.asked = threading.Event()
        self.requests: list[tuple[str, int]] = []  # requests for log ends: the kind, and the number of partitions
        self.member: FakeMembership | None = None

    # ---- ports.Dependencies

    def membership(self, **callbacks: Any) -> FakeMembership:
        self.member = FakeMembership(self, **callbacks)
        return self.member

    def log_ends(self) -> World:
        return self

    def incarnations(self, topics: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, self.incarnation) if self.incarnation else {}

    def tree_cluster(self) -> str | None:
        return self.named

    def reader(self) -> FakeReader:
        return FakeReader()

    def jobs(self) -> World:
        return self

    def meter(self) -> World:
        return self

    def progress(self) -> World:
        return self

    def await_turn(self) -> None:
        """At once."""

    # ---- ports.Meter

    def watch(self, frame: Any) -> Any:
        return frame

    def read(self, tag: str) -> tuple[int, int]:
        return 5, 50

    def activity(self, tag: str) -> object:
        return self.active

    # ---- ports.LogEnds

    def ask_offsets(
        self,
        partitions: Collection[TopicPartition],
        which: str,
        isolation: str | None,
        timeout_ms: int | None,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        for each in self.while_planning[: 1 if self.joined.is_set() else 0]:
            self.while_planning.remove(each)
            each()
        self.asked.set()
        self.requests.append((which, len(partitions)))
        if self.away:
            return {}, {each: UnavailableError("Kafka does not answer") for each in partitions}
        if which == "earliest":
            return {each: self.starts.get(each, 0) for each in partitions}, {}
        ends = self.high if self.high is not None and isolation == "read_uncommitted" else self.ends
        return {each: ends[each] for each in partitions if each in ends}, {}

    def reset_positions(self, partitions: Collection[TopicPartition], policy: str | int) -> dict[TopicPartition, int]:
        found = {"earliest": self.starts, "latest": self.ends}.get(policy, self.at_time)  # type: ignore[call-overload]
        return {each: found.get(each, 0) for each in partitions}

    def partitions(self) -> tuple[TopicPartition, ...]:
        if self.away:
            raise UnavailableError("Kafka does not answer")
        return tuple(sorted(self.ends))

    def confirm(self, topic: str, timeout_ms: int) -> None:
        self.looked.append("confirm")
        for each in self.while_confirming[:1]:
            self.while_confirming.remove(each)
            each()

    def look_anew(self, topic: str, timeout_ms: int) -> None:
        self.looked.append("anew")
        for each in self.while_looking[:1]:
            self.while_looking.remove(each)
            each()

    # ---- ports.Jobs

    @contextmanager
    def running(self, tag: str, description: str) -> Iterator[None]:
        yield

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)
        for each in self.on_cancel:
            each()

    # ---- ports.Progress

    def batch_done(self, report: Report) -> None:
        self.reports.append(report)

    def batch_lost(self) -> None:
        self.lost += 1

    def idle(self, lag: int) -> None:
        self.idle_told.set()

    def unheld(self) -> None:
        self.unheld_told.set()

    def close(self) -> None:
        self.closed += 1

    # ---- what tests say

    def consumer(self, **settings: Any) -> SparkConsumer:
        settings.setdefault("warm_up", lambda frame: self.events.append(f"warm {frame[0]}"))
        topics = settings.pop("topics", ["t"] if not settings.keys() & {"include", "exclude"} else ())
        return SparkConsumer(None, "zk", "kafka", "g", topics, dependencies=self, **settings)  # type: ignore[arg-type]


class Job:
    """A `process` that waits in each batch until the test lets it go, or until its job is cancelled."""

    def __init__(self, world: World) -> None:
        self.seen: list[Batch] = []
        self._changed = threading.Condition()
        self._begun = self._ended = self._allowed = 0
        self._cancelled = False
        world.on_cancel.append(self._cancel)

    def __call__(self, frame: object, batch: Batch) -> None:
        with self._changed:
            self.seen.append(batch)
            self._cancelled = False
            self._begun += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._cancelled or self._allowed > self._ended, DEADLINE_S)
            if self._cancelled:
                self._allowed += 1
            self._ended += 1
            if self._cancelled:
                raise CancelledJobError

    def await_begun(self, count: int) -> Batch:
        """The batch that is the `count`th to begin."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._begun >= count, DEADLINE_S), "no batch began"
            return self.seen[count - 1]

    def let_go(self, count: int = 1) -> None:
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def _cancel(self) -> None:
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()


class InThread:
    """Something that runs beside the test; its result or error is taken by `result`."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """By which it has ended."""
        return self._error

    def result(self) -> Any:
        self._thread.join(DEADLINE_S)
        assert self.done, "still running"
        if self._error is not None:
            raise self._error
        return self._value
