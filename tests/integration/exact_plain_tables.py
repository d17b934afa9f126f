"""The programs of `exact_plain`, whose batches go into a Delta and an Iceberg table below a path; and what is there."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from tests.integration.exact_plain import WORK_S, PlainSinks, main
from tests.spark.sinks.frames import TYPES, DeltaLog, Frame, Rows
from zkcoord import logs
from zkcoord.spark import Batch, write_delta, write_iceberg
from zkcoord.spark.sinks import spark_writer

TABLE = "db.clicks"
TASK_ROWS = 500
COLUMNS = ["partition", "offset", "n"]


class PlainTableSinks(PlainSinks):
    """Both tables. Spark's DataFrame is played by Arrow, and the tasks of its writer by this process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._delta = folder / "delta"
        self._warehouse = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}

    def process(self, frame: Any, batch: Batch) -> None:
        """Write a batch twice. Between its files and its transaction there is time to die, or to fall asleep."""
        ranges = [str(each) for each in batch.ranges]
        logs.emit("batch_started", seq=batch.seq, ranges=ranges, replayed=batch.replayed)
        columns = zip(*frame.toLocalIterator(), strict=True)
        rows = pa.table([pa.array(c, kind) for c, kind in zip(columns, TYPES.types, strict=True)], TYPES)
        played = Frame(rows, lambda: threading.Event().wait(random.uniform(0, WORK_S)), TASK_ROWS)
        write_delta(played, batch, self._delta)
        with self._catalog() as catalog:
            write_iceberg(played, batch, TABLE, catalog=catalog)
        logs.emit("batch_written", seq=batch.seq)

    @contextmanager
    def _catalog(self) -> Iterator[SqlCatalog]:
        catalog = SqlCatalog("tests", **self._warehouse)
        try:
            yield catalog
        finally:
            catalog.close()

    def prepare(self) -> None:
        """Make the Iceberg table. The first driver that writes makes the other."""
        with self._catalog() as catalog:
            catalog.create_namespace("db")
            catalog.create_table(TABLE, TYPES)

    def written(self) -> dict[str, Rows]:
        """Partition, offset and number of all rows, in order, by who has read them."""
        found = {"delta, its log and DuckDB": DeltaLog(self._delta).rows('"partition", "offset", n', "ALL")}
        with self._catalog() as catalog:
            scanned = {
                "delta, Polars": polars.scan_delta(str(self._delta)),
                "iceberg, Polars": polars.scan_iceberg(catalog.load_table(TABLE), reader_override="native"),
            }
            for name, each in scanned.items():
                found[name] = each.select(COLUMNS).sort(COLUMNS).collect().rows()
        return found


if __name__ == "__main__":
    spark_writer.counted = lambda rows: nullcontext((rows, rows.count))  # without Spark's own means, which need its JVM
    main(PlainTableSinks)
