"""A Delta table that was restored to an earlier version, and is filled up again from where it ends.

    python examples/restored_table.py write ZOOKEEPER BOOTSTRAP_SERVERS TOPIC TABLE
    python examples/restored_table.py restore TABLE VERSION
    python examples/restored_table.py refill ZOOKEEPER BOOTSTRAP_SERVERS TOPIC TABLE

`write` is the job. Its table got something wrong: stop the job, and `restore` a version from before. The group's
offsets are then ahead of the table. `write` would go on at them, and what the table lost would stay lost.

`refill` is the job with `resume_from`: each partition starts where the table ends, and a warning says so
(`resumed_from_table`). Afterwards run `write` again: `refill` would undo every reset of the group's offsets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyspark
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, delta_ends, write_delta

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version


def clicks(rows: DataFrame) -> DataFrame:
    """The columns of the table."""
    return rows.selectExpr("topic", "partition", "offset", "timestamp", "cast(value as string) as value")


def write(
    spark: SparkSession,
    zookeeper: str,
    bootstrap_servers: str,
    topic: str,
    table: str,
    resume_from: Callable[[], Callable[[str], int | None]] | None = None,
    **run: Any,
) -> int:
    """Append the topic's records to the table; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        write_delta(df, batch, table, transform=clicks)

    where = (spark, zookeeper, bootstrap_servers, "restored-table", [topic])
    consumer = SparkConsumer(*where, starting_offsets="earliest", resume_from=resume_from)
    return consumer.run(process, **run)


def refill(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, table: str, **run: Any) -> int:
    """Do as `write` does, but start each partition where the table ends."""
    return write(spark, zookeeper, bootstrap_servers, topic, table, delta_ends(table), **run)


def restore(table: str, version: int) -> int:
    """Restore the table to a version; return how many data files were removed from it."""
    restored = DeltaTable(table).restore(version)
    return int(restored["numRemovedFile"])


def main() -> None:
    """Run `write`, `refill` or `restore`."""
    if sys.argv[1:2] == ["restore"] and len(sys.argv) == 4:
        print(f"{restore(sys.argv[2], int(sys.argv[3]))} files are gone from the table")
        return
    jobs = {"write": write, "refill": refill}
    if len(sys.argv) != 6 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    word, zookeeper, bootstrap_servers, topic, table = sys.argv[1:]
    builder = SparkSession.builder.appName("restored table").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    try:
        batches = jobs[word](spark, zookeeper, bootstrap_servers, topic, table, idle_timeout_ms=5_000)
    except ZkcoordError as error:  # it says who must act
        sys.exit(f"error: {error}")
    print(f"{batches} batches were appended to {table}, which has version {DeltaTable(table).version()}")


if __name__ == "__main__":
    main()
