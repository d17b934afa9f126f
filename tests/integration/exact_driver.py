"""A driver program of the exactness tests: each batch goes into files by range, and into two tables."""

from __future__ import annotations

import logging
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zkcoord import logs
from zkcoord.demo.consumer import Job, arguments, end, session
from zkcoord.demo.options import GROUP, TOPIC, Places
from zkcoord.demo.output import NUMBER
from zkcoord.spark import Batch, SparkConsumer, write_parquet_ranges, write_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SESSION_TIMEOUT_MS = 4_000
LOCK_S = 60.0  # others write too; a loaded machine lets them take long


class Sinks:
    """Where all drivers write to."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder)
        self.connect = partial(sqlite3.connect, folder / "tables.db", timeout=LOCK_S)

    def process(self, frame: DataFrame, batch: Batch) -> None:
        """Write a batch three times."""
        ranges = [str(each) for each in batch.ranges]
        logs.emit("batch_started", seq=batch.seq, ranges=ranges, replayed=batch.replayed)
        records = Job.columns(frame)
        write_parquet_ranges(records, batch, self.places.output)
        logs.emit("batch_filed", seq=batch.seq)
        rows = records.select("topic", "partition", "offset", NUMBER)
        write_sql(rows, batch, self.connect, "keyed")
        write_sql(rows, batch, self.connect, "plain", offsets_table="plain_offsets")
        logs.emit("batch_written", seq=batch.seq)


def made(folder: Path, s3_port: int, postgres: str) -> Sinks:
    """Tables and ranges in a store, or tables in a PostgreSQL, where there is one."""
    if postgres:
        from tests.integration.exact_sql import PostgresSinks

        return PostgresSinks(folder, postgres)
    if not s3_port:
        return Sinks(folder)
    from tests.integration.exact_tables import TableSinks

    return TableSinks(folder, s3_port)


def main() -> None:
    """The program."""
    parser = arguments(__doc__)
    parser.add_argument("--at-rebalance", required=True)
    parser.add_argument("--s3-port", type=int, default=0)
    parser.add_argument("--postgres", default="")
    chosen = parser.parse_args()
    logs.configure("json", logging.INFO)
    sinks = made(chosen.folder, chosen.s3_port, chosen.postgres)
    os.chdir(sinks.places.scratch)  # Spark makes folders where it was started
    spark = session(chosen.name, sinks.places)
    warm = (sinks.places.scratch / f"warm-{chosen.name}").as_uri()
    consumer = SparkConsumer(
        spark,
        chosen.zookeeper,
        chosen.bootstrap_servers,
        GROUP,
        [TOPIC],
        starting_offsets="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        at_rebalance=chosen.at_rebalance,
        warm_up=lambda frame: Job.columns(frame).write.mode("overwrite").parquet(warm),
    )
    try:
        consumer.run(sinks.process)
    finally:
        end(spark)


if __name__ == "__main__":
    main()
