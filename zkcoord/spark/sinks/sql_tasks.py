"""`write_sql` in tasks: each task writes its ranges, one transaction for each, over a connection of its own.

    driver: the rows of a partition to one task (a shuffle) ──► task: the range's line of the offsets, its rows; commit
    driver: the lines of ranges without a row  ◄── how many rows each range was, or why it was refused

A transaction contains all rows of its range, since the shuffle collects them. So a range whose line was moved is
complete, and a task that Spark repeats finds it written.

These functions are passed to tasks by value: workers need pyarrow and the database's driver, but not zkcoord.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import zkcoord.core.model
import zkcoord.errors
import zkcoord.spark.ranges
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.ranges import Batch
from zkcoord.spark.sinks import sql_target
from zkcoord.spark.sinks.by_value import by_value
from zkcoord.spark.sinks.sql_target import Target, Wrote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTCOME = "topic string, partition int, sent bigint, passed_over string, skipped string, refused string, why string"
# returned instead of raised, since Spark would only repeat the task
REFUSALS = {"UsageError": UsageError, "UnavailableError": UnavailableError}
TRIED = 40  # numbers tried for each task, to find one whose hash leads to the task


def write_in_tasks(
    target: Target, connection: Any, df: DataFrame, batch: Batch, *, connect: Callable[[], Any], tasks: int
) -> Wrote:
    """Write like `Target.write`, in `tasks` tasks. `connection` is the driver's own, for ranges without a row."""
    write = by_value(partial(write_ranges, target, batch, connect, tuple(df.columns)), *ours())
    together = _together(df, batch, tasks).sortWithinPartitions(*sql_target.KEY)
    found: list[Any] = together.mapInArrow(write, OUTCOME).collect()
    for row in found:
        if row.refused is not None:
            raise REFUSALS[row.refused](row.why)
    written = {TopicPartition(row.topic, row.partition) for row in found}
    left = tuple(each for each in batch.ranges if each.topic_partition not in written)
    if left:
        found.append(target.write_at_once(connection, Rows(df.columns, ()), replace(batch, ranges=left)))
    passed_over, skipped = (
        "; ".join(filter(None, told)) for told in ([row.passed_over for row in found], [row.skipped for row in found])
    )
    return Wrote(sum(row.sent for row in found), passed_over, skipped)


def ours() -> tuple[ModuleType, ...]:
    """Return the modules that tasks need."""
    return (zkcoord.core.model, zkcoord.errors, zkcoord.spark.ranges, sql_target, sys.modules[__name__])


def write_ranges(
    target: Target, batch: Batch, connect: Callable[[], Any], columns: Sequence[str], batches: Iterator[Any]
) -> Iterator[Any]:
    """Write the ranges of a task's rows, which are sorted by partition. It runs in a task."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0  # rows that it finds written may be its own
    ranges = {each.topic_partition: each for each in batch.ranges}
    outcomes: list[dict[str, Any]] = []
    with closing(connect()) as connection:
        for at, rows in by_partition(batches):
            if at not in ranges:
                continue
            outcome: dict[str, Any] = {"topic": at.topic, "partition": at.partition}
            try:
                one = replace(batch, ranges=(ranges[at],))
                wrote = target.write_at_once(connection, Rows(columns, rows), one)
            except (UsageError, UnavailableError) as error:
                outcome |= {"refused": type(error).__name__, "why": str(error)}
            else:
                outcome |= wrote._asdict() | ({"passed_over": ""} if again else {})
            outcomes.append(outcome)
    order = ("topic", "partition", "sent", "passed_over", "skipped", "refused", "why")
    kinds = {**dict.fromkeys(order, pa.string()), "partition": pa.int32(), "sent": pa.int64()}
    yield pa.RecordBatch.from_pydict(
        {name: pa.array([each.get(name) for each in outcomes], kinds[name]) for name in order}
    )


def by_partition(batches: Iterable[Any]) -> Iterator[tuple[TopicPartition, Sequence[Any]]]:
    """Return each partition with its rows, as Arrow batches. The rows are sorted, so only one partition is kept in
    memory."""
    import pyarrow.compute as pc

    kept: list[Any] = []
    last: TopicPartition | None = None
    for batch in batches:
        done = 0
        while done < batch.num_rows:
            at = TopicPartition(batch.column("topic")[done].as_py(), batch.column("partition")[done].as_py())
            if last is not None and at != last:
                yield last, kept
                kept = []
            last = at
            rest = batch.slice(done)
            same = pc.and_(_equal(rest.column("topic"), at.topic), _equal(rest.column("partition"), at.partition))
            other = pc.index(same, False).as_py()
            kept.append(rest if other < 0 else rest.slice(0, other))
            done += kept[-1].num_rows
    if last is not None:
        yield last, kept


def _equal(column: Any, value: Any) -> Any:
    """Compare as grouping does: a null equals a null."""
    import pyarrow.compute as pc

    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)


class Rows:
    """A `RowSource` on Arrow batches."""

    def __init__(self, columns: Sequence[str], batches: Sequence[Any]) -> None:
        self.columns = list(columns)
        self._batches = batches

    def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples."""
        for batch in self._batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _together(df: DataFrame, batch: Batch, tasks: int) -> DataFrame:
    """Return the rows such that those of each partition are in one task, with large ranges spread over all tasks."""
    from pyspark.sql import functions as f

    salts = _salts(df.sparkSession, tasks)
    largest_first = sorted(batch.ranges, key=lambda each: (each.start - each.end, each))
    named: list[Any] = []
    for number, each in enumerate(largest_first):
        named += [f.lit(f"{each.topic}-{each.partition}"), f.lit(salts[number % tasks]).cast("bigint")]
    salt = f.try_element_at(f.create_map(*named), f.concat_ws("-", f.col("topic"), f.col("partition")))
    return df.repartition(tasks, salt)


def _salts(spark: SparkSession, tasks: int) -> Sequence[int]:
    """Return, for each task, a number that Spark's hash sends to it. Spark is asked once for each number of tasks."""
    if tasks not in _known_salts:
        tried = spark.range(TRIED * tasks).selectExpr("id", f"pmod(hash(id), {tasks}) AS task")
        found = dict(tried.groupBy("task").min("id").collect())
        _known_salts[tasks] = tuple(found.get(task, task) for task in range(tasks))
    return _known_salts[tasks]


_known_salts: dict[int, Sequence[int]] = {}
