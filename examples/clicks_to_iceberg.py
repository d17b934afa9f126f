"""Records of a topic in an Iceberg table, each once.

    python examples/clicks_to_iceberg.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC CATALOG [PROPERTY=VALUE ...]

CATALOG is a catalog of pyiceberg: a name in `~/.pyiceberg.yaml`, or one that the properties describe. To try it (after
`pip install 'pyiceberg[sql-sqlite]'`): `mine uri=sqlite:////tmp/catalog.db warehouse=file:///tmp/warehouse`.

The table is made if it is missing. Each batch is a snapshot, whose summary says up to where each partition is written.
So a batch that comes again is not written again, and a rollback of the table takes the ends back with the rows. When
old snapshots expire, the newest one of this job must stay.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pyspark
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import DataFrame, SparkSession

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_iceberg

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version
TABLE = "lake.clicks"
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("value", pa.string()),
    ]
)


def make_table(catalog: Catalog) -> None:
    """Make the table, partitioned by day, unless it exists."""
    catalog.create_namespace_if_not_exists(TABLE.split(".")[0])
    if not catalog.table_exists(TABLE):
        with catalog.create_table_transaction(TABLE, COLUMNS) as made, made.update_spec() as partitions:
            partitions.add_identity("day")


def clicks(rows: DataFrame) -> DataFrame:
    """The columns of the table."""
    text = "cast(timestamp as date) as day", "cast(value as string) as value"
    return rows.selectExpr("topic", "partition", "offset", "timestamp", *text)


def write(spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, catalog: Catalog, **run: Any) -> int:
    """Append the topic's records to the table; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        write_iceberg(df, batch, TABLE, catalog=catalog, transform=clicks)

    consumer = SparkConsumer(
        spark,
        zookeeper,
        bootstrap_servers,
        "clicks-to-iceberg",
        [topic],
        starting_offsets="earliest",
        min_batch_ms=5_000,  # each batch is a snapshot of the table, and a file for each task: let some come together
    )
    return consumer.run(process, **run)


def rows_by_day(catalog: Catalog) -> dict[str, int]:
    """Return how many rows the table has of each day, as any reader of Iceberg sees them."""
    days = catalog.load_table(TABLE).scan(selected_fields=("day",)).to_arrow()
    found = days.group_by("day").aggregate([([], "count_all")]).sort_by("day").to_pylist()
    return {str(row["day"]): row["count_all"] for row in found}


def main() -> None:
    """Write all records that exist now, then print the rows of each day."""
    if len(sys.argv) < 5 or not all("=" in word for word in sys.argv[5:]):
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, name, *properties = sys.argv[1:]
    builder = SparkSession.builder.appName("clicks to Iceberg").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    with load_catalog(name, **dict(word.split("=", 1) for word in properties)) as catalog:
        make_table(catalog)
        try:
            write(spark, zookeeper, bootstrap_servers, topic, catalog, idle_timeout_ms=5_000)
        except ZkcoordError as error:  # it says who must act
            sys.exit(f"error: {error}")
        for day, rows in rows_by_day(catalog).items():
            print(f"{rows:>9,} {day}")


if __name__ == "__main__":
    main()
