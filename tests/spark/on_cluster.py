"""A driver with two executors of its own: `python -m tests.spark.on_cluster ZOOKEEPER KAFKA TOPIC FOLDER`.

It prints one line of JSON with all results. SPARK_HOME must be a folder that it may write to: executors work below it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkcoord.embedded import connector_jars
from zkcoord.spark import Batch, SparkConsumer, register_source, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EXECUTORS = 2
STREAM_DEADLINE_S = 60


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


def lethal(flag: str, levels: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return work that kills its process at the first try of one task: its Python worker (`levels` 0), or the executor
    (`levels` 2)."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            yield from batches
            return
        victim = os.getpid()
        for _ in range(levels):  # a worker's parent is the daemon that forked it, whose parent is the executor
            victim = int(re.findall(r"\) \w (\d+)", Path(f"/proc/{victim}/stat").read_text())[0])
        os.kill(victim, signal.SIGKILL)
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


def main(zookeeper: str, kafka: str, topic: str, folder: str) -> None:
    """Run everything in turn, and print the results."""
    spark = session(f"{folder}/hidden")
    try:
        scene = Scene(spark, zookeeper, kafka, topic, Path(folder))
        told: dict[str, Any] = {reader: scene.spread(reader) for reader in ("kafka", "python")}
        told["worker"] = scene.survive("worker", 0, "python")
        told["executor"] = scene.survive("executor", 2, "kafka")
        told["shown"] = scene.shown()
        told["stream"] = scene.stream("stream")
    finally:
        spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
