"""The places of the exactness tests where a table or a store has each record once: ranges on S3, Delta and Iceberg.

The Delta table below a path is partitioned, another one there has counts only, and both are compacted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from tests.integration.exact_driver import Sinks
from tests.spark.sinks.delta_scan import by_delta_scan
from tests.spark.sinks.on_engines import ask
from tests.spark.sinks.s3_server import BUCKET, S3, arrow_options, delta_options, iceberg_options
from zkcoord import logs
from zkcoord.demo.consumer import Job
from zkcoord.demo.output import NUMBER
from zkcoord.spark import Batch, write_delta, write_iceberg, write_parquet_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = "db.clicks"
COLUMNS = ("topic", "partition", "offset", NUMBER)
READ = ["partition", "offset", NUMBER]
QUOTED = ", ".join(f'"{name}"' for name in READ)
COMPACTED = 4  # batches of a driver, one of which compacts
Rows = list[tuple[Any, ...]]


class TableSinks(Sinks):
    """Where all drivers write to: below a path, and into a store."""

    def __init__(self, folder: Path, s3_port: int) -> None:
        super().__init__(folder)
        self._folder, self._store = folder, S3(s3_port)
        self._key = folder.name  # of the store's folder

    def process(self, frame: DataFrame, batch: Batch) -> None:
        """Write a batch six times."""
        logs.emit("batch_started", seq=batch.seq, ranges=[str(r) for r in batch.ranges], replayed=batch.replayed)
        rows = Job.columns(frame).select(*COLUMNS)
        endpoint = self._store.endpoint
        write_parquet_ranges(rows, batch, f"s3://{BUCKET}/{self._key}/ranges", storage_options=arrow_options(endpoint))
        logs.emit("batch_in_ranges", seq=batch.seq)
        write_delta(rows, batch, self._folder / "delta", partition_by=["partition"])
        logs.emit("batch_in_delta", seq=batch.seq)
        write_delta(rows, batch, self._folder / "counts", transform=lambda rows: rows.groupBy("partition").count())
        logs.emit("batch_in_counts", seq=batch.seq)
        if batch.seq % COMPACTED == 0:
            self._compact()
        write_delta(rows, batch, f"s3://{BUCKET}/{self._key}/delta", storage_options=delta_options(endpoint))
        logs.emit("batch_in_delta_s3", seq=batch.seq)
        with self._catalog() as catalog:
            write_iceberg(rows, batch, TABLE, catalog=catalog)
        logs.emit("batch_in_iceberg", seq=batch.seq)
        with self._catalog(in_store=True) as catalog:
            write_iceberg(rows, batch, TABLE, catalog=catalog)
        logs.emit("batch_written", seq=batch.seq)

    @contextmanager
    def _catalog(self, *, in_store: bool = False) -> Iterator[Any]:
        from pyiceberg.catalog.sql import SqlCatalog

        name = "catalog-s3" if in_store else "catalog"
        files = f"s3://{BUCKET}/{self._key}/iceberg" if in_store else f"file://{self._folder}/warehouse"
        where = {"uri": f"sqlite:///{self._folder}/{name}.db", "warehouse": files}
        catalog = SqlCatalog("tests", **where, **iceberg_options(self._store.endpoint))
        try:
            yield catalog
        finally:
            catalog.close()

    def prepare(self) -> None:
        """Make the Iceberg tables; the drivers make the others."""
        import pyarrow as pa

        kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
        for in_store in (False, True):
            with self._catalog(in_store=in_store) as catalog:
                catalog.create_namespace("db")
                catalog.create_table(TABLE, pa.schema([*zip(COLUMNS, kinds, strict=True)]))

    def _compact(self) -> None:
        """Beside the drivers, which write and compact, too."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        for name in ("delta", "counts"):
            with suppress(DeltaError):  # another one has compacted the same files
                found = DeltaTable(self._folder / name).optimize.compact()
                logs.emit("compacted", table=name, removed=found["numFilesRemoved"])

    def written(self) -> dict[str, Rows]:
        """Partition, offset and number of all rows of each place; read by DuckDB."""
        copies, files = self._folder / "copies", {}
        for in_store in (False, True):
            with self._catalog(in_store=in_store) as catalog:
                files[in_store] = [each.file.file_path for each in catalog.load_table(TABLE).scan().plan_files()]
        stored = f"s3://{BUCKET}/{self._key}/iceberg"
        iceberg_s3 = self._store.download(f"{self._key}/iceberg", copies / "iceberg")
        ranges = self._store.download(f"{self._key}/ranges", copies / "ranges")
        delta_s3 = self._store.download(f"{self._key}/delta", copies / "delta")
        tables = (self._folder / "delta", delta_s3)
        delta = by_delta_scan([f"SELECT {QUOTED} FROM delta_scan('{table}')" for table in tables])
        return {
            "ranges": _read([str(each) for each in ranges.glob("*.parquet")]),
            "delta": [*map(tuple, delta[0])],
            "delta_s3": [*map(tuple, delta[1])],
            "iceberg": _read([each.removeprefix("file://") for each in files[False]]),
            "iceberg_s3": _read([each.replace(stored, str(iceberg_s3)) for each in files[True]]),
        }

    def read_by_spark(self) -> dict[str, Rows]:
        """The same of the tables below a path and of the copied one, after `written`; read by Spark's own."""
        with self._catalog() as catalog:
            iceberg = catalog.load_table(TABLE).metadata_location
        paths = {"delta": self._folder / "delta", "delta_s3": self._folder / "copies" / "delta"}
        tables = [[name, "delta", str(path)] for name, path in paths.items()] + [["iceberg", "iceberg", iceberg]]
        told = ask({"tables": tables, "columns": READ, "from": 2**62}, self._folder / "spark")
        return {f"{name}, Spark": [*map(tuple, found["all"])] for name, found in told["read"].items()}

    def counts(self) -> dict[int, int]:
        """Partition -> the sum of its counts."""
        question = (
            f"""SELECT "partition", sum("count")::bigint FROM delta_scan('{self._folder / "counts"}') GROUP BY 1"""
        )
        return dict(sorted(by_delta_scan([question])[0]))


def _read(files: Sequence[str]) -> Rows:
    return [*duckdb.sql(f"SELECT {QUOTED} FROM read_parquet({[*files]!r})").fetchall()]
