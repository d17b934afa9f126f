"""Records a minute, by key: a count over several partitions that is exact, whatever dies meanwhile.

    python examples/exact_counts.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC TABLE

Each batch appends its partial counts to a Delta table. Its transaction also says up to where each partition is counted.
So the rows of a range count in one transaction only: a batch that comes again after a crash, whole or dealt to several
consumers, counts what the table lacks, and nothing else. Who reads sums the partial counts up, here in a view.

(`windowed_aggregation.py` does without a table that knows this, and is at-least-once.)
"""

from __future__ import annotations

import sys
from typing import Any

import pyspark
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_delta

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version
VIEW = "records_a_minute"
SUMS = f"CREATE OR REPLACE TEMPORARY VIEW {VIEW} AS SELECT minute, key, sum(n) AS n FROM partial GROUP BY minute, key"


def partial(rows: DataFrame) -> DataFrame:
    """Return the counts of these rows. The sink calls it only with rows that the table has not counted."""
    minute = functions.date_trunc("minute", "timestamp").alias("minute")
    return rows.groupBy(minute, functions.col("key").cast("string").alias("key")).agg(functions.count("*").alias("n"))


def count(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, table: str, **run: Any) -> int:
    """Write partial counts into the table; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        write_delta(df, batch, table, transform=partial)

    consumer = SparkConsumer(
        spark,
        zookeeper,
        bootstrap_servers,
        "exact-counts",
        [topic],
        starting_offsets="earliest",
        min_batch_ms=5_000,  # counts of few records are no smaller than of many: let some come together
    )
    return consumer.run(process, **run)


def result(spark: SparkSession, table: str) -> DataFrame:
    """Return minute, key and n: the sum of all partial counts in the table now."""
    files = DeltaTable(table).file_uris()  # with Delta's jars for Spark: spark.read.format("delta").load(table)
    spark.read.schema("minute timestamp, key string, n bigint").parquet(*files).createOrReplaceTempView("partial")
    spark.sql(SUMS)
    return spark.table(VIEW).orderBy("minute", "key")


def main() -> None:
    """Count all records that exist now, then print the sums."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, table = sys.argv[1:]
    builder = SparkSession.builder.appName("exact counts").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    try:
        count(spark, zookeeper, bootstrap_servers, topic, table, idle_timeout_ms=5_000)
    except ZkcoordError as error:  # it says who must act
        sys.exit(f"error: {error}")
    if not DeltaTable.is_deltatable(table):
        sys.exit(f"no counts: nothing has been read into {table} yet")
    result(spark, table).show(100, truncate=False)


if __name__ == "__main__":
    main()
