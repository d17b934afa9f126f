"""The interfaces that the driver loop needs: a membership, Kafka's log ends, a reader, Spark's jobs, progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import ZkcoordError
from zkcoord.kafka.client import Isolation as Isolation
from zkcoord.kafka.client import Where as Where
from zkcoord.spark.ranges import Batch, OffsetRange, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Process = Callable[["DataFrame", Batch], object]
Stopped = Callable[[Collection[TopicPartition], Mapping[TopicPartition, int]], None]  # `zkcoord.Consumer.stopped`
OnStop = Callable[[tuple[TopicPartition, ...], Stopped], Mapping[TopicPartition, int]]
TableEnds = Callable[[], Callable[[str], int | None]]
"""Reads a table. Returns a function from a partition's name in it (`sinks.once.partition_name`) to its end there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One committed batch, and where its time went.

    `lag` is the number of offsets between the positions after it and the ends on which it was planned. `rows` and
    `bytes` (of keys and values) are what the batch's jobs have read; None if unknown. There are fewer rows than offsets
    where the log has gaps, and more where `process` reads the DataFrame twice.
    """

    batch: Batch
    lag: int
    rows: int | None
    bytes: int | None
    drain_ms: int  # time to obey starts and losses since the batch before
    plan_ms: int
    process_ms: int
    commit_ms: int
    acknowledge_ms: int  # time from the arrival of stops to their answers since the batch before; most of it is waiting

    @property
    def offsets(self) -> int:
        """The number of offsets in the batch."""
        return offsets_in(self.batch.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a consumer waits, and how often it tries."""

    away_wait_ms: tuple[int, int] = (100, 5_000)  # Kafka or ZooKeeper is down: the first and the longest wait
    warm_up_ms: int = 10_000
    # how long the first read is repeated if it fails although Kafka tells the ends of its logs
    away_batches_max: int = 5  # failed batches in a row although Kafka tells the ends of its logs; that is no outage
    anew_ms: int = 5_000  # between two looks for another cluster through new connections; Spark's connector makes some
    look_ms: int = 1_000  # between looks at a running batch: probes come seconds apart
    cancel_wait_ms: int = 5_000  # a cancelled batch ends within a second; code outside Spark cannot be cancelled
    lease_check_ms: int = 200  # between looks at the lease while a stop waits for a batch; a session lasts seconds
    commit_wait_ms: int = 10_000  # a commit of a lost session fails with the session; a longer wait is a fault
    member_wait_ms: int = 30_000  # at a query's start: at least for Kafka, and then for the registration
    kafka_again_ms: int = 500  # between two questions to a Kafka that is down; each takes up to 10 s itself


class Membership(Protocol):
    """The part of `zkcoord.Consumer` that the loop uses."""

    @property
    def consumer_id(self) -> str | None: ...
    @property
    def generation(self) -> int: ...
    @property
    def stop_within_ms(self) -> int | None: ...
    @property
    def error(self) -> BaseException | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def announce(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None: ...
    def commit(
        self, offsets: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int] | None = None
    ) -> None: ...
    def report(self, progress: int, lag: int) -> None: ...
    def reading(self, partitions: Iterable[TopicPartition]) -> None: ...
    def allowed(self, partition: TopicPartition) -> bool: ...
    def incarnation(self, partition: TopicPartition) -> int: ...
    def join_when(self, ready: Callable[[], bool], stop_needs_ms: int = 0) -> None: ...


class LogEnds(Protocol):
    """The part of `zkcoord.kafka.steady.SteadyClient` that the loop uses. Each call is one request, as a rule. All
    answers come from the cluster that answered first; otherwise a call raises UsageError."""

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: Where, isolation: Isolation | None, timeout_ms: int | None
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, ZkcoordError]]: ...
    def reset_positions(
        self, partitions: Collection[TopicPartition], policy: Where
    ) -> Mapping[TopicPartition, int]: ...
    def partitions(self) -> tuple[TopicPartition, ...]: ...
    @property
    def cluster_id(self) -> str | None:
        """The cluster's id as it was first told. None: it was not told. This sends no request."""

    def confirm(self, topic: str, timeout_ms: int) -> None:
        """Return when the brokers are known to belong to this cluster still, which is usual at once. `topic` is any
        existing topic. Raises UsageError if they do not, and UnavailableError if nobody answers."""

    def look_anew(self, topic: str, timeout_ms: int) -> None:
        """Do the same as `confirm` through new connections, to learn what clients are told that connect now."""

    def close(self) -> None: ...


class Reader(Protocol):
    """Turns ranges into a DataFrame with the columns of Spark's own Kafka source. Only an action reads."""

    def read(self, ranges: Collection[OffsetRange]) -> DataFrame:
        """Return the records of these ranges, which name each partition once.

        Raises UsageError if this reader cannot work in this session. The error says what to add.
        """

    def lacks(self, error: Exception) -> str | None:
        """Return what to add to this session if an action on such a DataFrame failed because it is missing; else
        None."""
        return None

    def away(self, error: Exception) -> bool:
        """Return True if an action on such a DataFrame failed because Kafka did not answer: it may succeed later."""
        return False

    def of_cluster(self, told: Callable[[], str | None]) -> None:
        """Make actions fail on records of another cluster than the one that `told` returns, if this reader can tell."""
        return

    def elsewhere(self, error: Exception) -> str | None:
        """Return what to correct if an action failed because its records came from another cluster; else None."""
        return None


class Jobs(Protocol):
    """Names and cancels the Spark jobs of one thread."""

    def running(self, tag: str, description: str) -> AbstractContextManager[None]:
        """Tag and describe everything that this thread starts within this block."""

    def cancel(self, tag: str) -> None:
        """End the active jobs with this tag. Harmless if there are none. Any thread may call it."""


class Meter:
    """Counts what a batch reads. This base class knows nothing."""

    def watch(self, df: DataFrame) -> DataFrame:
        """Return the DataFrame that is passed to `process` instead of the reader's."""
        return df

    def read(self, tag: str) -> tuple[int | None, int | None]:
        """Return the rows and bytes that the jobs with this tag have read of the last watched DataFrame, as far as
        known."""
        return None, None

    def activity(self, tag: str) -> object:
        """Return a value that changes while jobs with this tag make progress. None: it is not known. Any thread may
        call it."""
        return None


class Progress:
    """Is told how a run goes, on the batch thread. A subclass overrides what it needs."""

    def batch_done(self, report: Report) -> None:
        """A batch was committed."""

    def batch_lost(self) -> None:
        """A batch was dropped."""

    def idle(self, lag: int) -> None:
        """There is nothing to read."""

    def unheld(self) -> None:
        """No partition is held."""

    def close(self) -> None:
        """The run is over."""


class MemberCallbacks(TypedDict):
    """The callbacks of a membership, as `zkcoord.Consumer` takes them. `on_stop` also gets the consumer's `stopped`."""

    on_start: Callable[[Starting], None]
    on_stop: OnStop
    on_lost: Callable[[tuple[TopicPartition, ...]], None]
    on_replay: Callable[[Mapping[TopicPartition, tuple[int, int]]], None]
    reset: Callable[[tuple[TopicPartition, ...]], Mapping[TopicPartition, int]]
    cluster_id: Callable[[], str | None]


class Dependencies(Protocol):
    """Makes the dependencies of a consumer. `zkcoord.spark.dependencies` has the real ones."""

    @property
    def limits(self) -> Limits: ...
    def membership(self, **callbacks: Unpack[MemberCallbacks]) -> Membership: ...
    def log_ends(self) -> LogEnds: ...
    def incarnations(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the numbers of these topics' present incarnations. Unknown ones are left out."""

    def tree_cluster(self) -> str | None:
        """Return the id of the cluster whose topics the tree has. None: the tree names none."""

    def reader(self) -> Reader: ...
    def jobs(self) -> Jobs: ...
    def meter(self) -> Meter: ...
    def progress(self) -> Progress: ...
    def await_turn(self) -> None:
        """Return when the loop may plan its next batch. The batch thread calls it, and holds no lock then."""
