"""What the driver loop needs from the world: a membership, Kafka's log ends, a reader, Spark's jobs, progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.errors import ZkcoordError
from zkcoord.spark.ranges import Batch, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Policy = Literal["latest", "earliest"]
Isolation = Literal["read_committed", "read_uncommitted"]
Process = Callable[["DataFrame", Batch], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One committed batch. `lag`: offsets between the positions after it and the ends that it was planned on."""

    batch: Batch
    lag: int
    plan_ms: int
    process_ms: int
    commit_ms: int


class Membership(Protocol):
    """`zkcoord.Consumer` as the loop uses it."""

    @property
    def generation(self) -> int: ...
    @property
    def error(self) -> Exception | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def report(self, progress: int, lag: int) -> None: ...
    def allowed(self, partition: TopicPartition) -> bool: ...


class LogEnds(Protocol):
    """`zkcoord.kafka.client.KafkaClient` as the loop uses it. Each call is one request."""

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: Policy, isolation: Isolation | None, timeout_ms: int | None
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, ZkcoordError]]: ...
    def reset_positions(
        self, partitions: Collection[TopicPartition], policy: Policy
    ) -> Mapping[TopicPartition, int]: ...
    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """Ranges in, a DataFrame with the columns of Spark's own Kafka source out. Nothing is read before an action."""

    def read(self, ranges: Collection[OffsetRange]) -> DataFrame:
        """The records of these ranges, which name each partition once.

        UsageError if this reader cannot work in this session; it says what to add.
        """


class Jobs(Protocol):
    """Naming and cancelling what one thread asks of Spark."""

    def running(self, tag: str, description: str) -> AbstractContextManager[None]:
        """Within it, all that this thread starts carries the tag and the description."""

    def cancel(self, tag: str) -> None:
        """End what carries the tag and is active now; harmless when there is nothing. Any thread."""


class Progress(Protocol):
    """Who is told how it goes. Called on the batch thread only."""

    def batch_done(self, report: Report) -> None: ...
    def idle(self, lag: int) -> None: ...
    def close(self) -> None: ...


class Parts(Protocol):
    """Makes what a consumer is wired from; `zkcoord.spark.wiring` has the real ones."""

    def membership(
        self,
        *,
        on_start: Callable[[Mapping[TopicPartition, int]], None],
        on_stop: Callable[[tuple[TopicPartition, ...]], Mapping[TopicPartition, int]],
        on_lost: Callable[[tuple[TopicPartition, ...]], None],
        reset: Callable[[tuple[TopicPartition, ...]], Mapping[TopicPartition, int]],
    ) -> Membership: ...
    def log_ends(self) -> LogEnds: ...
    def reader(self) -> Reader: ...
    def jobs(self) -> Jobs: ...
    def progress(self) -> Progress: ...
