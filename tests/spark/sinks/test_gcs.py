"""The sinks below a URI of Google's store: what they promise on S3, they keep there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.sinks.faulty_store import StoreApart
from tests.spark.sinks.frames import TYPES, A, B, Frame, Rows, batch, once, records
from tests.spark.sinks.gcs_server import BUCKET, arrow_options, delta_options, gcs_server, iceberg_options
from zkcoord.spark import delta_ends, iceberg_ends, write_delta, write_iceberg, write_parquet_ranges
from zkcoord.spark.ranges import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.gcs, pytest.mark.long]
PA = "zkcoord/etl/clicks-0"
LONGER = A._replace(end=20)


@pytest.fixture(scope="module")
def store() -> Iterator[StoreApart]:
    with gcs_server() as running:
        yield running


def read_in(store: StoreApart, files: list[str]) -> Rows:
    """The rows of these files of the store."""
    lake = fs.GcsFileSystem(**arrow_options(store.endpoint))
    read = pa.concat_tables(pyarrow.parquet.read_table(each, filesystem=lake) for each in sorted(files))
    return [tuple(row.values()) for row in read.to_pylist()]


@pytest.mark.parametrize("kind", ["lost", "busy"])
@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_f295_ranges_in_googles_store_are_files_that_a_repeated_range_replaces(
    store: StoreApart, scheme: str, kind: str, tmp_path: Path
) -> None:
    options = arrow_options(store.endpoint)
    met = [store.add(kind, method, "clicks-0", 1) for method in ("POST", "PUT")]  # an upload's beginning, and its end
    place = f"{scheme}://{BUCKET}/{tmp_path.name}"
    for replayed in (False, True):
        frame: Any = Frame.of(A, B, tasks=4)
        told = write_parquet_ranges(frame, batch(A, B, replayed=replayed), place, storage_options=options)
        assert told == (("clicks-0-10-14.parquet", 4), ("clicks-1-5-8.parquet", 3))
        assert [each() for each in met] == [1, 1]
        found = fs.GcsFileSystem(**options).get_file_info(fs.FileSelector(f"{BUCKET}/{tmp_path.name}"))
        assert sorted(each.base_name for each in found) == [each.file for each in told]
        assert read_in(store, [each.path for each in found]) == records(A, B)


@pytest.mark.parametrize("split", [(), ("word",)])
def test_f295_a_delta_table_in_googles_store_has_each_record_once_though_answers_are_lost(
    store: StoreApart, split: tuple[str, ...], tmp_path: Path
) -> None:
    uri, options = f"gs://{BUCKET}/{tmp_path.name}", delta_options(store.endpoint)

    def write(*ranges: OffsetRange, **settings: Any) -> int:
        rows = Frame.of(*ranges).rows
        words = pa.array(["a b", None] * rows.num_rows).slice(0, rows.num_rows)
        frame: Any = Frame(rows.append_column("word", words), **settings)
        return write_delta(frame, batch(*ranges), uri, storage_options=options, partition_by=split)

    assert write(B) == 3
    met = [store.add(kind, "PUT", ".json", 1) for kind in ("busy", "lost")]
    assert (write(A), [each() for each in met]) == (4, [1, 1])
    assert (write(A, B), write(LONGER, on_write=once(lambda: write(A._replace(start=14, end=16))))) == (0, 4)
    read = polars.from_arrow(DeltaTable(uri, storage_options=options).to_pyarrow_table())
    assert isinstance(read, polars.DataFrame)
    found = read.select("topic", "partition", "offset", "n").sort("topic", "partition", "offset").rows()
    assert (found, delta_ends(uri, storage_options=options)()(PA)) == (records(LONGER, B), 20)
    assert len(DeltaTable(uri, storage_options=options).partitions()) == (2 if split else 0)


@pytest.mark.parametrize("kind", ["busy", "lost"])
@pytest.mark.parametrize("file", [".parquet", ".avro", ".metadata.json"])
def test_f295_an_iceberg_table_in_googles_store_has_each_record_once_though_answers_are_lost(
    store: StoreApart, kind: str, file: str, tmp_path: Path
) -> None:
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"gs://{BUCKET}/{tmp_path.name}"}
    with closing(SqlCatalog("tests", **place, **iceberg_options(store.endpoint))) as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.clicks", TYPES)

        def write(*ranges: OffsetRange) -> int:
            frame: Any = Frame.of(*ranges)
            return write_iceberg(frame, batch(*ranges), "db.clicks", catalog=catalog)

        assert write(B) == 3
        met = store.add(kind, "PUT", file, 1)
        assert (write(A), met()) == (4, 1)
        assert (write(A, B), write(LONGER)) == (0, 6)
        table = catalog.load_table("db.clicks")
        files = [task.file.file_path.removeprefix("gs://") for task in table.scan().plan_files()]
        assert sorted(read_in(store, files)) == records(LONGER, B)
        assert iceberg_ends("db.clicks", catalog=catalog)()(PA) == 20
