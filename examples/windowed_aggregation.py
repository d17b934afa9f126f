"""Records a minute, by key: an aggregate over several partitions, and why it is at-least-once.

    python examples/windowed_aggregation.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC FOLDER

A batch's counts are a *partial* result: its window goes on in later batches, and in other consumers. So each batch adds
a file of partial counts, and whoever reads sums them up.

A batch that is processed, and whose commit a crash prevents, comes again. Does its file replace the first one? It is
named by `batch.id`, which depends on the ranges alone: yes, when the same ranges come again as one batch. But after a
death the ranges of that batch may be dealt to several consumers, in batches with other ids; a count over all of them
cannot be taken apart again, so what the dead one had written stands beside it and is counted twice. That is
at-least-once. Who needs more keeps rows by (topic, partition, offset) or by range, as `word_count.py` does, and
aggregates when reading: what comes again then replaces itself, however it is dealt.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession, functions

from zkcoord.spark import Batch, SparkConsumer

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version


def aggregate(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, folder: Path, **run: Any) -> int:
    """Write partial counts into `folder`; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        minute = functions.date_trunc("minute", df.timestamp).alias("minute")
        partial = df.groupBy(minute, df.key.cast("string").alias("key")).count()
        partial.write.mode("overwrite").parquet(str(folder / f"batch={batch.id}"))  # the same ranges again replace it

    consumer = SparkConsumer(
        spark,
        zookeeper,
        bootstrap_servers,
        "records-a-minute",
        [topic],
        starting_offsets="earliest",
        min_batch_ms=1_000,  # counts of few records are as large as counts of many: so wait for more
    )
    return consumer.run(process, **run)


def result(spark: SparkSession, folder: Path) -> DataFrame:
    """Return minute, key, and count over all batches."""
    partial = spark.read.parquet(str(folder))
    return partial.groupBy("minute", "key").agg(functions.sum("count").alias("count")).orderBy("minute", "key")


def main() -> None:
    """Everything there is now, then the table."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, folder = sys.argv[1:]
    builder = SparkSession.builder.appName("records a minute").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    aggregate(spark, zookeeper, bootstrap_servers, topic, Path(folder), idle_timeout_ms=5_000)
    if not any(Path(folder).glob("batch=*")):
        sys.exit(f"no counts: nothing has been read into {folder} yet")
    result(spark, Path(folder)).show(100, truncate=False)


if __name__ == "__main__":
    main()
