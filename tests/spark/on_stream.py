"""A query of ranges whose batches go into three tables, as a program.

    python -m tests.spark.on_stream FOLDER ZOOKEEPER KAFKA TOPIC LAST

In its second batch the program kills itself, with its JVM, as soon as the table LAST has the batch. It is to be started
in a process group of its own. Without such a table it runs until it is killed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from tests.spark.sinks.frames import DeltaLog, Rows
from zkcoord.embedded import connector_jars, spark_environment
from zkcoord.spark import Batch, batches, register_source, spark_session, write_delta, write_iceberg, write_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "stream"
TABLE = "db.clicks"
LOCK_S = 60.0  # two tasks write at once
SQL = """
CREATE TABLE IF NOT EXISTS clicks ("topic", "partition", "offset");
CREATE TABLE IF NOT EXISTS ends ("topic", "partition", next_offset, PRIMARY KEY (topic, "partition"));
"""


class Tables:
    """A Delta table, an Iceberg table and a table of SQLite, each with what it needs to know its ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connect = partial(sqlite3.connect, folder / "tables.db", timeout=LOCK_S)
        with closing(self._connect()) as connection:
            connection.executescript(SQL)

    def write(self, df: DataFrame, batch: Batch, then: Callable[[str], object] = len) -> dict[str, int]:
        """Write a batch into each; return how many rows of it each has taken. `then` is told each table that has it."""
        rows, taken = df.select("topic", "partition", "offset"), {}
        with closing(self._catalog()) as catalog:
            if not catalog.table_exists(TABLE):
                catalog.create_namespace_if_not_exists("db")
                catalog.create_table(TABLE, rows.limit(0).toArrow().schema)
            for name, write in {
                "delta": lambda: write_delta(rows, batch, self._folder / "delta"),
                "iceberg": lambda: write_iceberg(rows, batch, TABLE, catalog=catalog),
                "sql": lambda: write_sql(rows, batch, self._connect, "clicks", offsets_table="ends", tasks=2),
            }.items():
                taken[name] = write()
                then(name)
        return taken

    def rows(self) -> dict[str, Rows]:
        """Return partition and offset of all rows of each table, in order."""
        what = '"partition", "offset"'
        with closing(self._catalog()) as catalog:
            files = [each.file.file_path for each in catalog.load_table(TABLE).scan().plan_files()]
        with closing(self._connect()) as connection:
            stored = connection.execute(f"SELECT {what} FROM clicks ORDER BY 1, 2").fetchall()
        return {
            "delta": DeltaLog(self._folder / "delta").rows(what, "ALL"),
            "iceberg": duckdb.sql(f"SELECT {what} FROM read_parquet({files!r}) ORDER BY ALL").fetchall(),
            "sql": stored,
        }

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        where = {"uri": f"sqlite:///{self._folder}/catalog.db", "warehouse": f"file://{self._folder}/warehouse"}
        return SqlCatalog("tests", **where)


def main(folder: str, zookeeper: str, kafka: str, topic: str, last: str) -> None:
    """The program. It notes each batch that it begins."""
    place = Path(folder)
    tables, seen = Tables(place), []

    def die(name: str) -> None:
        if name == last and len(seen) == 2:
            os.killpg(0, signal.SIGKILL)

    def process(df: DataFrame, batch: Batch) -> None:
        seen.append(batch.seq)
        with (place / "batches").open("a") as noted:
            noted.write(f"{last} {batch.seq} {batch.id}\n")
        tables.write(df, batch, die)

    spark = spark_session("stream", jars=connector_jars(), environment=spark_environment(), log_level="OFF")
    register_source(spark)
    rows = (
        spark.readStream.format("zkcoord")
        .option("zookeeper", zookeeper)
        .option("kafka.bootstrap.servers", kafka)
        .option("group", GROUP)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .option("sessionTimeoutMs", "6000")
        .option("rows", "ranges")
        .load()
    )
    writer = rows.writeStream.foreachBatch(batches(process)).option("checkpointLocation", f"{folder}/checkpoint")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
