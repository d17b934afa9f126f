"""A structured streaming job, before and after: the same transformation, the same function for each batch.

    python examples/moved_over.py before|after ZOOKEEPER BOOTSTRAP_SERVERS TOPIC FOLDER

| before                                 | after                                                                     |
| -------------------------------------- | ------------------------------------------------------------------------- |
| `readStream.format("kafka")`, options  | arguments of `SparkConsumer`; `kafka.X` goes into `config` as it is       |
| `subscribe`, `subscribePattern`        | `topics`, `include`                                                       |
| `startingOffsets`, `startingTimestamp` | `starting_offsets`                                                        |
| `failOnDataLoss`                       | `out_of_range="fail"`, or where to go on                                  |
| `maxOffsetsPerTrigger`                 | `max_offsets_per_batch`                                                   |
| `trigger(processingTime=...)`          | `min_batch_ms`                                                            |
| `trigger(availableNow=True)`           | `run(..., idle_timeout_ms=5_000)`: until nothing came for five seconds    |
| `foreachBatch(f)`, `f(df, number)`     | `run(f)`, `f(df, batch)`: `batch.id` is the same for the same ranges      |
| `checkpointLocation`                   | nothing: offsets are the group's, at first those of `starting_offsets`    |
| a second application, a share by hand  | start it: partitions move by themselves                                   |

Stateful operators (`withWatermark`, `dropDuplicates`, windows) have no counterpart: a batch is an ordinary DataFrame;
`windowed_aggregation.py` shows what takes their place.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from zkcoord.spark import Batch, SparkConsumer

OPTIONS = {"kafka.max.partition.fetch.bytes": "4194304"}  # and kafka.security.protocol, kafka.sasl.jaas.config, ...


def transform(df: DataFrame) -> DataFrame:
    """What the job is about; it does not know where its rows come from."""
    return df.selectExpr("cast(key as string) as key", "upper(cast(value as string)) as value", "timestamp")


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


def after(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, folder: Path, **run: Any) -> int:
    """The same as a member of a group; returns how many batches it took."""

    def process(df: DataFrame, batch: Batch) -> None:
        transform(df).write.mode("overwrite").parquet(str(folder / f"batch={batch.id}"))

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
    """One of the two."""
    which, zookeeper, bootstrap_servers, topic, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("moved over").getOrCreate()
    if which == "before":
        before(spark, bootstrap_servers, topic, Path(folder))
    else:
        after(spark, zookeeper, bootstrap_servers, topic, Path(folder), idle_timeout_ms=5_000)


if __name__ == "__main__":
    main()
