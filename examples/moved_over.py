"""A structured streaming job, before and after: the same transformation, and what is written once stays written once.

    python examples/moved_over.py before|stream|after ZOOKEEPER BOOTSTRAP_SERVERS TOPIC FOLDER

`stream` changes least: another format, three options more, and the query is a member of a group. In `batches` Spark's
connector reads, and the second argument of `f`, a number before, is a `Batch` (`batch.seq` is the number). Without both
`batches` and the option `rows` Python workers read, slower and without a jar, and `foreachBatch(f)` is as it was.
`after` is the driver loop: no checkpoint, less time for each batch, batches that can be cancelled.

| before: `format("kafka")`              | stream: `format("zkcoord")`  | after: `SparkConsumer`                       |
| -------------------------------------- | ---------------------------- | -------------------------------------------- |
| options                                | as they are                  | arguments; `kafka.X` goes into `config`      |
| -                                      | `zookeeper`, `group`, `rows` | the first two                                |
| `subscribe`, `subscribePattern`        | as they are                  | `topics`, `include`                          |
| `startingOffsets`, `startingTimestamp` | where the group has none yet | `starting_offsets`, likewise                 |
| `failOnDataLoss`                       | as it is                     | `out_of_range="fail"`, or where to go on     |
| `maxOffsetsPerTrigger`                 | as it is                     | `max_offsets_per_batch`                      |
| `trigger(processingTime=...)`          | as it is                     | `min_batch_ms`                               |
| `trigger(availableNow=True)`           | as it is                     | `run(..., idle_timeout_ms=5_000)`            |
| `foreachBatch(f)`, `f(df, number)`     | `foreachBatch(batches(f))`   | `run(f)`, `f(df, batch)` in both             |
| `checkpointLocation`                   | a new one                    | nothing: offsets are the group's             |
| a second application, a share by hand  | start it                     | start it: partitions move by themselves      |

Stateful operators (`withWatermark`, `dropDuplicates`, windows) work on a stream; a batch of the driver loop is an
ordinary DataFrame, and `windowed_aggregation.py` shows what takes their place.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from zkcoord.spark import Batch, SparkConsumer, batches, register_source, write_parquet_ranges

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version
OPTIONS = {"kafka.max.partition.fetch.bytes": "4194304"}  # and kafka.security.protocol, kafka.sasl.jaas.config, ...


def transform(df: DataFrame) -> DataFrame:
    """What the job is about; it does not know where its rows come from."""
    keep = ("topic", "partition", "cast(key as string) as key", "upper(cast(value as string)) as value", "timestamp")
    return df.selectExpr(*keep)


def before(spark: SparkSession, bootstrap_servers: str, topic: str, folder: Path) -> None:
    """Structured streaming: what is there now, then it ends."""

    def process(df: DataFrame, number: int) -> None:
        transform(df).write.mode("overwrite").parquet(str(folder / f"batch={number}"))

    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .options(**OPTIONS)
        .load()
    )
    writer = rows.writeStream.foreachBatch(process).option("checkpointLocation", str(folder / "_checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def stream(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, folder: Path) -> None:
    """The same as a member of a group. Ranges of offsets name what is written, not numbers of batches: whoever reads a
    range again replaces its file."""

    def process(df: DataFrame, batch: Batch) -> None:
        write_parquet_ranges(transform(df), batch, folder)

    register_source(spark)
    rows = (
        spark.readStream.format("zkcoord")
        .option("zookeeper", zookeeper)
        .option("group", "moved-over-stream")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .option("rows", "ranges")  # which `batches` reads
        .option("joinWaitMs", 60_000)  # for partitions: other members of the group finish their batches first
        .options(**OPTIONS)
        .load()
    )
    work = batches(process)
    writer = rows.writeStream.foreachBatch(work).option("checkpointLocation", str(folder / "_checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def after(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, folder: Path, **run: Any) -> int:
    """The same without a query; returns how many batches it took."""

    def process(df: DataFrame, batch: Batch) -> None:
        write_parquet_ranges(transform(df), batch, folder)

    consumer = SparkConsumer(
        spark,
        zookeeper,
        bootstrap_servers,
        "moved-over",
        [topic],
        starting_offsets="earliest",
        max_offsets_per_batch=100_000,
        config=OPTIONS,
    )
    return consumer.run(process, **run)


def main() -> None:
    """One of the three, then how many rows there are."""
    if len(sys.argv) != 6 or sys.argv[1] not in ("before", "stream", "after"):
        sys.exit(__doc__)
    which, zookeeper, bootstrap_servers, topic, folder = sys.argv[1:]
    builder = SparkSession.builder.appName("moved over").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    if which == "before":
        before(spark, bootstrap_servers, topic, Path(folder))
    elif which == "stream":
        stream(spark, zookeeper, bootstrap_servers, topic, Path(folder))
    else:
        after(spark, zookeeper, bootstrap_servers, topic, Path(folder), idle_timeout_ms=5_000)
    if not any(Path(folder).rglob("*.parquet")):
        sys.exit(f"nothing has been read into {folder} yet")
    print(f"{spark.read.parquet(folder).count():,} rows in {folder}")


if __name__ == "__main__":
    main()
