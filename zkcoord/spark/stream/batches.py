"""A stream whose rows are ranges: each batch is read as in the driver loop, with Spark's Kafka connector.

    rows = spark.readStream.format("zkcoord").option("rows", "ranges")....load()
    rows.writeStream.foreachBatch(batches(process)).start()

The ranges are taken from the running query's plan, so no task reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UsageError
from zkcoord.spark.jobs import is_connect
from zkcoord.spark.ports import Process
from zkcoord.spark.ranges import Batch, OffsetRange, batch_id, offsets_in
from zkcoord.spark.readers.kafka import KafkaReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
RANGE = ("topic", "partition", "from_offset", "until_offset", "incarnation")
COLUMNS = (*RANGE, "group_id", "generation", "replayed", "reader")
PLAIN = ("Project", "MicroBatchScan")  # nodes of a plan that pass the source's rows on unchanged
Row = Sequence[Any]  # values of COLUMNS


def batches(process: Process) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` of a query with the option `rows=ranges`: it calls `process(df, batch)`.

    `df` has the records of the batch's ranges, with the columns of Spark's own Kafka source. `batch.seq` is Spark's
    number. A batch without ranges (their records are gone, and `failOnDataLoss` is false) is skipped.

    Raises UsageError for a DataFrame that is not exactly as the source made it (a filter is refused, too), without the
    connector, and through Spark Connect.
    """
    if not callable(process):
        raise UsageError(f"process is {process!r}; it must be a function of a DataFrame and a Batch")

    last: _Run | None = None

    def run(df: DataFrame, number: int) -> None:
        nonlocal last
        _check_rows(df)
        now = last
        if now is None or not now.has(df.sparkSession):
            now = last = _Run(df.sparkSession)
        rows, secrets = now.planned()
        if not rows:
            return
        batch = batch_of(rows, number)
        reader = now.reader({**json.loads(rows[0][-1]), **secrets})
        try:
            process(reader.read(batch.ranges), batch)
        except Exception as error:
            lacking = reader.lacks(error)
            if lacking is None:
                raise
            raise UsageError(lacking) from error

    return run


def batch_of(rows: Sequence[Row], number: int) -> Batch:
    """Return the batch that these rows describe.

    >>> batch_of([("t", 1, 5, 9, 1, "etl", 7, False, "{}")], 3).ranges
    (OffsetRange(topic='t', partition=1, start=5, end=9, incarnation=1),)
    """
    ranges = tuple(sorted(OffsetRange(*row[:5]) for row in rows))
    *_, group, generation, replayed, _ = rows[0]
    return Batch(id=batch_id(ranges), seq=number, generation=generation, ranges=ranges, replayed=replayed, group=group)


def _check_rows(df: DataFrame) -> None:
    """Raises UsageError for rows that are not ranges, and through Spark Connect."""
    if tuple(df.columns) != COLUMNS:
        raise UsageError(
            f"the batch has the columns {', '.join(df.columns)}, and not those of ranges: give the query "
            '.option("rows", "ranges"), and transform the records in `process`, not before foreachBatch'
        )
    if is_connect(df.sparkSession):
        raise UsageError(
            "batches() takes the ranges from the query's plan, which is out of reach through Spark Connect: leave the "
            "option rows away there, and give foreachBatch the function itself; or use a SparkConsumer"
        )


class _Run:
    """One run of a query, which has a session of its own. Values that are the same for all its batches are requested
    from Java once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query = _running(spark)
        self._checked = False
        self._reader: tuple[Mapping[str, str], KafkaReader] | None = None

    def has(self, spark: SparkSession) -> bool:
        """True for this run's session, for which Spark makes a new Python object in each batch."""
        return bool(self._spark._jsparkSession == spark._jsparkSession)

    def planned(self) -> tuple[Sequence[Row], Mapping[str, str]]:
        """Take the rows from the batch's plan, together with the reader's credentials, which are in none of the rows.

        No task and no Python worker runs. Spark counts the offsets as rows. Raises UsageError for a query that does not
        pass its rows on unchanged; its first batch shows that, since all batches are planned alike.
        """
        from pyspark import cloudpickle

        plan = self._query.lastExecution().executedPlan()
        leaves = plan.collectLeaves()
        scans = [leaves.apply(index) for index in range(leaves.size())]
        if len(scans) != 1:
            raise UsageError(f"the query has {len(scans)} sources; batches() needs format('zkcoord') alone")
        if not self._checked:
            _check_plan(plan, scans[0])
        self._checked = True
        planned = scans[0].inputPartitions()
        found = [cloudpickle.loads(planned.apply(index).pickedPartition()).value for index in range(planned.size())]
        rows = [row for told in found for row in told["rows"]]
        scans[0].metrics().apply("numOutputRows").add(offsets_in(OffsetRange(*row[:5]) for row in rows))
        return rows, {key: value for told in found for key, value in told["secrets"].items()}

    def reader(self, options: Mapping[str, str]) -> KafkaReader:
        """Return the reader with these options."""
        if self._reader is None or self._reader[0] != options:
            self._reader = options, KafkaReader(self._spark, options)
        return self._reader[1]


def _running(spark: SparkSession) -> Any:
    """Return Java's object for the query that runs on this thread."""
    context: Any = spark.sparkContext
    number = context._jvm.java.util.UUID.fromString(context.getLocalProperty(QUERY_ID))
    return spark._jsparkSession.sharedState().activeStreamingQueries().get(number)


def _check_plan(plan: Any, scan: Any) -> None:
    """Raises UsageError if the query does anything between its source and `foreachBatch`, since it would be ignored."""
    nodes = [re.sub(r"^[\W\d]*", "", line) for line in plan.toString().splitlines()]
    other = [each for each in nodes if each and not each.startswith(PLAIN)]
    if not other and plan.output().mkString() == scan.output().mkString():
        return
    raise UsageError(
        f"the query changes or leaves out rows before foreachBatch ({other[0] if other else nodes[0]}), and these rows "
        "are ranges, of which batches() reads all records: filter and transform the records in `process`"
    )
