"""A driver with two executors of its own: `python -m tests.spark.on_cluster ZOOKEEPER KAFKA TOPIC FOLDER`, and for the
sinks `python -m tests.spark.on_cluster sinks FOLDER`.

It prints one line of JSON with all results. SPARK_HOME must be a folder that it may write to: executors work below it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sqlite3
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkcoord.embedded import connector_jars
from zkcoord.spark import (
    Batch,
    OffsetRange,
    SparkConsumer,
    register_source,
    spark_session,
    write_delta,
    write_iceberg,
    write_parquet_ranges,
    write_sql,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EXECUTORS = 2
STREAM_DEADLINE_S = 60
ROWS = 2_000  # of each range for a sink
COLUMNS = "topic string, partition int, offset bigint, n bigint"


def session(hidden: str) -> SparkSession:
    """Return a session with two executors of one core each, and with the Spark UI. The executors' Python finds `hidden`
    first."""
    config = {
        "spark.executorEnv.PYTHONPATH": hidden,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.executor.heartbeatInterval": "1s",
        "spark.sql.shuffle.partitions": "2",
        "spark.cores.max": str(EXECUTORS),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # so that the first executor does not run alone
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    jars = connector_jars()
    return spark_session(
        "cluster", jars=jars, master=f"local-cluster[{EXECUTORS},1,1024]", config=config, log_level="OFF"
    )


def kill_above(levels: int) -> None:
    """Kill this process, or the one so many levels above it: a worker's parent is the daemon that forked it, whose
    parent is the executor."""
    victim = os.getpid()
    for _ in range(levels):
        victim = int(re.findall(r"\) \w (\d+)", Path(f"/proc/{victim}/stat").read_text())[0])
    os.kill(victim, signal.SIGKILL)


def lethal(
    flag: str, levels: int, *, late: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return work that kills its process at the first try of one task: its Python worker (`levels` 0), or the executor
    (`levels` 2). `late`: when it has returned its rows."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            yield from batches
            return
        if late:
            yield from batches
        kill_above(levels)
        yield from batches  # an executor's worker lives on for a moment

    return work


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return for each task the executor that ran it, and whether zkcoord could be imported there."""
    import pyarrow

    for _ in batches:
        pass
    try:
        importlib.import_module("zkcoord")
    except ImportError:
        found = False
    else:
        found = True
    executor = int(re.findall(r"\) \w (\d+)", Path(f"/proc/{os.getppid()}/stat").read_text())[0])
    yield pyarrow.RecordBatch.from_pydict({"executor": [executor], "zkcoord": [found]})


class Scene:
    """One topic that several consumers read one after the other, each in a group of its own."""

    def __init__(self, spark: SparkSession, zookeeper: str, kafka: str, topic: str, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self._at = (zookeeper, kafka)
        self._topic = topic

    def read(self, group: str, process: Callable[[DataFrame, Batch], object], **choices: Any) -> SparkConsumer:
        """Read everything in one batch; the result of `process` is ignored."""
        zookeeper, kafka = self._at
        consumer = SparkConsumer(
            *(self.spark, zookeeper, kafka, group, [self._topic]), starting_offsets="earliest", **choices
        )
        consumer.run(process, max_batches=1)
        return consumer

    def spread(self, reader: Any) -> dict[str, Any]:
        """Return where the tasks of one batch ran, the records, and the consumer's own counters."""
        found: dict[str, Any] = {}

        def process(df: DataFrame, batch: Batch) -> None:
            rows = df.mapInArrow(where, "executor bigint, zkcoord boolean").collect()
            found["executors"] = len({row.executor for row in rows})
            found["zkcoord"] = sorted({row.zkcoord for row in rows})
            found["records"] = sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())

        consumer = self.read(f"spread-{reader}", process, reader=reader)
        return {**found, "offsets": consumer.metrics.offsets, "lost": consumer.metrics.lost}

    def survive(self, name: str, levels: int, reader: Any) -> dict[str, Any]:
        """Process a batch during which a worker or an executor is killed."""
        found: dict[str, Any] = {}
        flag = self.folder / name

        def process(df: DataFrame, batch: Batch) -> None:
            rows = df.select("partition", "offset").mapInArrow(
                lethal(str(flag), levels), "partition int, offset bigint"
            )
            found["records"] = sorted((row.partition, row.offset) for row in rows.collect())
            found["seq"] = batch.seq

        consumer = self.read(name, process, reader=reader)
        return {**found, "killed": flag.exists(), "batches": consumer.metrics.batches, "lost": consumer.metrics.lost}

    def stream(self, name: str) -> dict[str, Any]:
        """Run a query of `format("zkcoord")` whose executors cannot import zkcoord."""
        register_source(self.spark)
        found: list[list[int]] = []
        executors: set[int] = set()
        zookeeper, kafka = self._at

        def process(df: DataFrame, number: int) -> None:
            rows = df.mapInArrow(where, "executor bigint, zkcoord boolean").collect()
            executors.update(row.executor for row in rows)
            found.extend([row.partition, row.offset] for row in df.select("partition", "offset").collect())

        rows = (
            self.spark.readStream.format("zkcoord")
            .option("zookeeper", zookeeper)
            .option("kafka.bootstrap.servers", kafka)
            .option("group", name)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("joinWaitMs", STREAM_DEADLINE_S * 1000)
            .load()
        )
        writer = rows.writeStream.foreachBatch(process).option("checkpointLocation", str(self.folder / name))
        query = writer.trigger(availableNow=True).start()
        ended = query.awaitTermination(STREAM_DEADLINE_S)
        error = query.exception()
        return {
            "ended": ended,
            "error": None if error is None else str(error),
            "executors": len(executors),
            "records": sorted(found),
        }

    def shown(self) -> list[str]:
        """Return the descriptions of all jobs from the Spark UI's REST API."""
        context = self.spark.sparkContext
        with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs") as answer:
            return sorted({job.get("description", "") for job in json.load(answer)})


def connected(file: str, flag: str) -> sqlite3.Connection:
    """Return a connection to SQLite. The first one of a worker kills its executor when it has committed rows, so that
    its answer is lost."""

    class Lethal(sqlite3.Connection):
        def commit(self) -> None:
            from pyspark import TaskContext

            deadly = self.in_transaction and TaskContext.get() is not None  # not in the driver
            super().commit()
            if deadly:
                with suppress(FileExistsError):
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                    kill_above(2)
                    threading.Event().wait(STREAM_DEADLINE_S)  # its worker lives on for a moment

    return sqlite3.connect(file, timeout=STREAM_DEADLINE_S, factory=Lethal)


def into_sinks(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Write a batch into each sink, twice. One executor is killed while it writes for the first time."""
    from pyiceberg.catalog.sql import SqlCatalog

    ranges = tuple(OffsetRange("clicks", task, 0, ROWS) for task in range(4))
    batch = Batch(id="b", seq=0, generation=1, ranges=ranges, group="etl")
    plain = spark.range(0, 4 * ROWS, 1, 4).selectExpr(
        "'clicks' AS topic", "spark_partition_id() AS partition", f"id % {ROWS} AS offset", "id AS n"
    )
    where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    catalog = SqlCatalog("tests", **where)
    catalog.create_namespace("db")
    catalog.create_table("db.t", spark.createDataFrame([], COLUMNS).toArrow().schema)
    connect = partial(connected, str(folder / "tables.db"), str(folder / "killed-sql"))

    def files(rows: DataFrame, place: Path | str) -> int:
        return sum(each.rows for each in write_parquet_ranges(rows, batch, place))

    sinks: dict[str, Callable[[DataFrame], int]] = {
        "ranges": lambda rows: files(rows, folder / "ranges"),
        "ranges_tasks": lambda rows: files(rows, f"file://{folder}/ranges_tasks"),
        "delta": lambda rows: write_delta(rows, batch, folder / "delta"),
        "iceberg": lambda rows: write_iceberg(rows, batch, "db.t", catalog=catalog),
        "sql": lambda rows: write_sql(rows, batch, connect, "clicks", offsets_table="ends", tasks=2),
    }
    told: dict[str, Any] = {}
    for name, write in sinks.items():
        flag = folder / f"killed-{name}"
        kills = plain.mapInArrow(lethal(str(flag), 2, late=True), COLUMNS)
        told[name] = {"rows": [write(plain if name == "sql" else kills), write(plain)], "killed": flag.exists()}
    catalog.close()
    return told


def main(*arguments: str) -> None:
    """Run everything in turn, and print the results."""
    folder = arguments[-1]
    spark = session(f"{folder}/hidden")
    try:
        told = into_sinks(spark, Path(folder)) if arguments[0] == "sinks" else of_consumers(spark, *arguments)
    finally:
        spark.stop()
    print(json.dumps(told))


def of_consumers(spark: SparkSession, zookeeper: str, kafka: str, topic: str, folder: str) -> dict[str, Any]:
    """Let consumers and a query read."""
    scene = Scene(spark, zookeeper, kafka, topic, Path(folder))
    told: dict[str, Any] = {reader: scene.spread(reader) for reader in ("kafka", "python")}
    told["worker"] = scene.survive("worker", 0, "python")
    told["executor"] = scene.survive("executor", 2, "kafka")
    told["shown"] = scene.shown()
    told["stream"] = scene.stream("stream")
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
