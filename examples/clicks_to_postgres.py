"""Records of a topic in a table of PostgreSQL, each once, written by Spark's tasks in parallel.

    python examples/clicks_to_postgres.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC DATABASE

DATABASE says how to connect, from here and from Spark's workers, which need psycopg: `host=localhost dbname=clicks`.

Each range of offsets is a transaction, in which its line of the table `clicks_offsets` moves, too. So a batch that
breaks off leaves whole ranges only, and what comes again, from whichever consumer, writes what is missing. The rows do
not pass through this program. (`examples/plain_consumer.py` fills a table without Spark.)
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import psycopg
import pyspark
from pyspark.sql import DataFrame, SparkSession

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_sql

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version
TASKS = 4  # connections that write at once
TABLES = """
CREATE TABLE IF NOT EXISTS clicks (topic text, "partition" int, "offset" bigint, "timestamp" timestamptz, value text);
CREATE TABLE IF NOT EXISTS clicks_offsets
    (topic text, "partition" int, next_offset bigint, incarnation int NOT NULL, PRIMARY KEY (topic, "partition"));
"""


def make_tables(database: str) -> None:
    """Make both tables, unless they exist."""
    with psycopg.connect(database) as connection:
        connection.execute(TABLES)


def write(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, database: str, **run: Any) -> int:
    """Insert the topic's records; return the number of batches."""
    connect = partial(psycopg.connect, database)  # is sent to the workers; an open connection cannot be sent

    def process(df: DataFrame, batch: Batch) -> None:
        rows = df.selectExpr("topic", "partition", "offset", "timestamp", "cast(value as string) as value")
        write_sql(rows, batch, connect, "clicks", offsets_table="clicks_offsets", placeholder="%s", tasks=TASKS)

    where = (spark, zookeeper, bootstrap_servers, "clicks-to-postgres", [topic])
    return SparkConsumer(*where, starting_offsets="earliest").run(process, **run)


def count(database: str) -> int:
    """How many rows the table has."""
    with psycopg.connect(database) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM clicks").fetchone()
        return int(rows)


def main() -> None:
    """Write all records that exist now, then print the number of rows."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, database = sys.argv[1:]
    make_tables(database)
    builder = SparkSession.builder.appName("clicks to PostgreSQL").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    try:
        write(spark, zookeeper, bootstrap_servers, topic, database, idle_timeout_ms=5_000)
    except ZkcoordError as error:  # it says who must act
        sys.exit(f"error: {error}")
    print(f"{count(database):,} rows")


if __name__ == "__main__":
    main()
