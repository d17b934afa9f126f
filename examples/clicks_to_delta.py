"""Records of a topic in a Delta table, each once, and how the table is compacted while the job runs.

    python examples/clicks_to_delta.py write ZOOKEEPER BOOTSTRAP_SERVERS TOPIC TABLE
    python examples/clicks_to_delta.py compact TABLE

`write` appends what there is. The table's own transactions say how far it has each partition, so a batch that comes
again is not written again, whoever brings it. TABLE is a path, or a URI of an object store.

`compact` makes few large files of the many small ones that batches leave, and removes files that nobody needs any more.
Run it from a timer, beside the job: both commit to the table, and whoever comes second tries again. Files that were
compacted stay for those who read an older version: their retention must be longer than a reader, or a batch, takes.
"""

from __future__ import annotations

import sys
from typing import Any

import pyspark
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_delta

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version
RETENTION_HOURS = 24 * 7


def clicks(rows: DataFrame) -> DataFrame:
    """The columns of the table."""
    text = "cast(key as string) as key", "cast(value as string) as value"
    return rows.selectExpr("topic", "partition", "offset", "timestamp", "cast(timestamp as date) as day", *text)


def write(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, table: str, **run: Any) -> int:
    """Append the topic's records to the table; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        write_delta(df, batch, table, transform=clicks, partition_by=["day"])

    consumer = SparkConsumer(
        spark,
        zookeeper,
        bootstrap_servers,
        "clicks-to-delta",
        [topic],
        starting_offsets="earliest",
        min_batch_ms=5_000,  # each batch is a version of the table, and a file for each task: let some come together
    )
    return consumer.run(process, **run)


def compact(table: str) -> tuple[int, int, int]:
    """Compact the table; return the numbers of files before and after, and of the old files that were removed."""
    found = DeltaTable(table)
    made = found.optimize.compact()
    removed = found.vacuum(RETENTION_HOURS, dry_run=False, full=True)  # also files of programs that died
    return made["numFilesRemoved"], made["numFilesAdded"], len(removed)


def main() -> None:
    """Run `write` or `compact`."""
    if sys.argv[1:2] == ["compact"] and len(sys.argv) == 3:
        before, after, removed = compact(sys.argv[2])
        print(f"{before} files became {after}; {removed} old ones were removed")
        return
    if sys.argv[1:2] != ["write"] or len(sys.argv) != 6:
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, table = sys.argv[2:]
    builder = SparkSession.builder.appName("clicks to Delta").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    try:
        batches = write(spark, zookeeper, bootstrap_servers, topic, table, idle_timeout_ms=5_000)
    except ZkcoordError as error:  # it says who must act
        sys.exit(f"error: {error}")
    print(f"{batches} batches were appended to {table}")


if __name__ == "__main__":
    main()
