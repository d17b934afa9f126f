"""The tables of the exactness tests in PostgreSQL, which Spark's tasks write to: one with a key, one with offsets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.integration.exact_driver import Sinks
from tests.spark.sinks.frames import Rows
from zkcoord import logs
from zkcoord.demo.consumer import Job
from zkcoord.demo.output import NUMBER
from zkcoord.spark import Batch, write_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = f'topic text, "partition" int, "offset" bigint, {NUMBER} bigint'
MADE = f"""
CREATE TABLE keyed ({COLUMNS}, PRIMARY KEY (topic, "partition", "offset"));
CREATE TABLE plain ({COLUMNS});
CREATE TABLE plain_offsets (topic text, "partition" int, next_offset bigint, PRIMARY KEY (topic, "partition"));
"""


class PostgresSinks(Sinks):
    """Where all drivers write to, each from two tasks."""

    def __init__(self, folder: Path, where: str) -> None:
        super().__init__(folder)
        self._database = partial(psycopg.connect, where)

    def process(self, frame: DataFrame, batch: Batch) -> None:
        """Write a batch twice."""
        logs.emit("batch_started", seq=batch.seq, ranges=[str(r) for r in batch.ranges], replayed=batch.replayed)
        rows = Job.columns(frame).select("topic", "partition", "offset", NUMBER)
        write_sql(rows, batch, self._database, "plain", offsets_table="plain_offsets", placeholder="%s", tasks=2)
        logs.emit("batch_in_plain", seq=batch.seq)
        write_sql(rows, batch, self._database, "keyed", placeholder="%s", tasks=2)
        logs.emit("batch_written", seq=batch.seq)

    def prepare(self) -> None:
        """Make the tables."""
        with self._database() as connection:
            connection.execute(MADE)

    def written(self) -> dict[str, Rows]:
        """Return partition, offset and number of all rows of each table."""
        question = f'SELECT "partition", "offset", {NUMBER} FROM {{}} ORDER BY 1, 2'
        with self._database() as connection:
            return {name: connection.execute(question.format(name)).fetchall() for name in ("keyed", "plain")}
