"""Words of a topic, counted over files that hold each record once.

    python examples/word_count.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC FOLDER

Every batch is written as one Parquet file for each range of offsets, named by it; a range that comes again replaces its
own file. The count is a second job over the files: it can be repeated, corrected, done anew, and reads no Kafka.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession, functions

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_parquet_ranges

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version


def collect(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, folder: Path, **run: Any) -> int:
    """Write the topic's words into files below `folder`; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        text = functions.lower(df.value.cast("string"))
        words = df.select("topic", "partition", functions.explode(functions.split(text, r"\W+")).alias("word"))
        write_parquet_ranges(words.where("word != ''"), batch, folder)  # no shuffle before: a task is a range

    consumer = SparkConsumer(spark, zookeeper, bootstrap_servers, "word-count", [topic], starting_offsets="earliest")
    return consumer.run(process, **run)


def count(spark: SparkSession, folder: Path) -> dict[str, int]:
    """The ten most frequent words in the files; none before the first batch."""
    if not any(folder.glob("*.parquet")):
        return {}
    words = spark.read.parquet(str(folder)).groupBy("word").count()
    return {row["word"]: row["count"] for row in words.orderBy(functions.desc("count"), "word").limit(10).collect()}


def main() -> None:
    """Read all records that exist now, then print the count."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, folder = sys.argv[1:]
    builder = SparkSession.builder.appName("word count").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    try:
        collect(spark, zookeeper, bootstrap_servers, topic, Path(folder), idle_timeout_ms=5_000)
    except ZkcoordError as error:  # it says who must act
        sys.exit(f"error: {error}")
    found = count(spark, Path(folder))
    if not found:
        sys.exit(f"no words: nothing has been read into {folder} yet")
    for word, times in found.items():
        print(f"{times:>9,} {word}")


if __name__ == "__main__":
    main()
