"""Structured streaming queries of one group, and the records of each of their batches."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.together import DEADLINE_S
from zkcoord.clock import mono_ms
from zkcoord.errors import UsageError
from zkcoord.group_report import read_group
from zkcoord.shell.zk.blocking import Tree
from zkcoord.spark import Batch, batches, register_source, stream_batch
from zkcoord.tree.paths import DRAFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.spark.conftest import Topic


class Stream:
    """Queries of one group on one topic, and the records of each of their batches."""

    def __init__(self, spark: SparkSession, zookeeper: str, topic: Topic) -> None:
        register_source(spark)
        self.spark, self.zookeeper, self.topic = spark, zookeeper, topic
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self.batches: list[
            tuple[str, int, list[tuple[int, int]]]
        ] = []  # query, number, (partition, offset) of each row
        self.ranges: list[tuple[str, Batch]] = []
        self.of_ranges = False  # whether Spark's connector reads, by ranges that are the query's rows
        self.write: Callable[[DataFrame, Batch], object] = lambda df, batch: None  # called in each batch, first
        self.before: Callable[[int], None] = lambda number: None  # called in each batch, before its rows are taken
        self._changed = threading.Condition()

    def rows(self, **options: str) -> DataFrame:
        return (
            self.spark.readStream.format("zkcoord")
            .option("zookeeper", self.zookeeper)
            .option("kafka.bootstrap.servers", self.topic.bootstrap_servers)
            .option("group", self.group)
            .option("subscribe", self.topic.name)
            .option("startingOffsets", "earliest")
            .option("sessionTimeoutMs", "6000")
            .options(**options)
            .load()
        )

    def start(
        self, name: str, checkpoint: Path, trigger: dict[str, Any] | None = None, **options: str
    ) -> StreamingQuery:
        of_ranges = self.of_ranges

        def process(df: DataFrame, held: Batch) -> None:
            number = held.seq
            if of_ranges:  # the connector's V2 path
                assert "BatchScan" in df._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
            self.write(df, held)
            self.before(number)
            rows = sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())
            with self._changed:
                assert set(rows) <= {
                    (each.partition, offset) for each in held.ranges for offset in range(each.start, each.end)
                }
                self.batches.append((name, number, rows))
                self.ranges.append((name, held))
                self._changed.notify_all()

        def each(df: DataFrame, number: int) -> None:
            process(df, stream_batch(self.spark, checkpoint, number))

        if of_ranges:
            options["rows"] = "ranges"
        work = batches(process) if of_ranges else each
        writer = self.rows(**options).writeStream.foreachBatch(work).option("checkpointLocation", str(checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    @property
    def records(self) -> Counter[tuple[int, int]]:
        return Counter(row for _, _, rows in self.batches for row in rows)

    def by(self, name: str) -> set[int]:
        return {partition for query, _, rows in self.batches for partition, _ in rows if query == name}

    def committed(self) -> dict[int, int]:
        """Return partition -> offset of the group. (Under load a query may have read all records and not have committed
        them yet; `processAllAvailable` does not wait for that.)"""
        return committed(self.zookeeper, self.group)

    def wait_for(self, what: Callable[[], bool], *queries: StreamingQuery) -> None:
        with self._changed:
            assert self._changed.wait_for(what, DEADLINE_S), [each.exception() for each in queries] or self.batches


def committed(zookeeper: str, group: str) -> dict[int, int]:
    """Return partition -> offset of the group; empty if there is no such group (yet)."""
    tree = Tree(zookeeper)
    try:
        offsets = read_group(tree, DRAFT, group).offsets
    except UsageError:
        return {}
    finally:
        tree.close()
    return {partition: offset for (_, partition), offset in offsets.items() if offset is not None}


def await_progress(query: StreamingQuery, number: int) -> dict[str, Any]:
    """Wait until Spark has noted this batch as complete; return its progress."""
    deadline = mono_ms() + DEADLINE_S * 1000
    while mono_ms() < deadline:
        for each in query.recentProgress:
            if each["batchId"] == number and each["numInputRows"]:
                return dict(each)
        threading.Event().wait(0.05)
    raise AssertionError(query.recentProgress)
