"""The places of the exactness tests where a table or a store has each record once: Delta, Iceberg, and ranges on S3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from tests.integration.exact_driver import Sinks
from tests.sinks.frames import DeltaLog
from tests.sinks.s3_server import BUCKET, S3, arrow_options, delta_options
from zkcoord import logs
from zkcoord.demo.consumer import Job
from zkcoord.demo.output import NUMBER
from zkcoord.spark import Batch, write_delta, write_iceberg, write_parquet_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = "db.clicks"
COLUMNS = ("topic", "partition", "offset", NUMBER)
Rows = list[tuple[Any, ...]]


class TableSinks(Sinks):
    """Where all drivers write to: below a path, and into a store."""

    def __init__(self, folder: Path, s3_port: int) -> None:
        super().__init__(folder)
        self._folder, self._store = folder, S3(s3_port)
        self._key = folder.name  # of the store's folder

    def process(self, frame: DataFrame, batch: Batch) -> None:
        """Write a batch four times."""
        logs.emit("batch_started", seq=batch.seq, ranges=[str(r) for r in batch.ranges], replayed=batch.replayed)
        rows = Job.columns(frame).select(*COLUMNS)
        endpoint = self._store.endpoint
        write_parquet_ranges(rows, batch, f"s3://{BUCKET}/{self._key}/ranges", storage_options=arrow_options(endpoint))
        logs.emit("batch_in_ranges", seq=batch.seq)
        write_delta(rows, batch, self._folder / "delta")
        logs.emit("batch_in_delta", seq=batch.seq)
        write_delta(rows, batch, f"s3://{BUCKET}/{self._key}/delta", storage_options=delta_options(endpoint))
        logs.emit("batch_in_delta_s3", seq=batch.seq)
        with self._catalog() as catalog:
            write_iceberg(rows, batch, TABLE, catalog=catalog)
        logs.emit("batch_written", seq=batch.seq)

    @contextmanager
    def _catalog(self) -> Iterator[Any]:
        from pyiceberg.catalog.sql import SqlCatalog

        where = {"uri": f"sqlite:///{self._folder}/catalog.db", "warehouse": f"file://{self._folder}/warehouse"}
        catalog = SqlCatalog("tests", **where)
        try:
            yield catalog
        finally:
            catalog.close()

    def prepare(self) -> None:
        """Make the Iceberg table; the drivers make the others."""
        import pyarrow as pa

        kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
        with self._catalog() as catalog:
            catalog.create_namespace("db")
            catalog.create_table(TABLE, pa.schema([*zip(COLUMNS, kinds, strict=True)]))

    def written(self) -> dict[str, Rows]:
        """Partition, offset and number of all rows, in order, of each place; read by DuckDB."""
        columns, copies = f'"partition", "offset", {NUMBER}', self._folder / "copies"
        with self._catalog() as catalog:
            files = [each.file.file_path for each in catalog.load_table(TABLE).scan().plan_files()]
        ranges = self._store.download(f"{self._key}/ranges", copies / "ranges")
        delta_s3 = self._store.download(f"{self._key}/delta", copies / "delta")
        return {
            "ranges": _read([str(each) for each in ranges.glob("*.parquet")]),
            "delta": DeltaLog(self._folder / "delta").rows(columns, "ALL"),
            "delta_s3": DeltaLog(delta_s3).rows(columns, "ALL"),
            "iceberg": _read([each.removeprefix("file://") for each in files]),
        }


def _read(files: Sequence[str]) -> Rows:
    question = f'SELECT "partition", "offset", {NUMBER} FROM read_parquet({[*files]!r}) ORDER BY ALL'
    return [*duckdb.sql(question).fetchall()]
