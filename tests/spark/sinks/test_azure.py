"""The sinks below a URI of Azure: what they promise on S3, they keep there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from tests.spark.sinks.azure_server import ACCOUNT, CONTAINER, arrow_options, azure_server, delta_options
from tests.spark.sinks.faulty_store import StoreApart
from tests.spark.sinks.frames import A, B, Frame, Rows, batch, once, records
from zkcoord.spark import delta_ends, write_delta, write_parquet_ranges
from zkcoord.spark.ranges import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.azure, pytest.mark.long]
PA = "zkcoord/etl/clicks-0"
LONGER = A._replace(end=20)
HOST = f"{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"


@pytest.fixture(scope="module")
def store() -> Iterator[StoreApart]:
    with azure_server() as running:
        yield running


def by_word(*ranges: OffsetRange, **settings: Any) -> Any:
    """The records, with a word each: every other one has none."""
    rows = Frame.of(*ranges).rows
    words = pa.array(["a b", None] * rows.num_rows).slice(0, rows.num_rows)
    return Frame(rows.append_column("word", words), **settings)


def found_in(uri: str, options: Any) -> Rows:
    """The rows, read by Polars."""
    read = polars.scan_delta(uri, storage_options=options).select("topic", "partition", "offset", "n")
    return read.sort("topic", "partition", "offset").collect().rows()


@pytest.mark.parametrize("uri", [f"abfs://{CONTAINER}", f"abfss://{HOST}"])
def test_f249_ranges_in_azure_are_files_that_a_repeated_range_replaces(
    store: StoreApart, uri: str, tmp_path: Path
) -> None:
    options = {**arrow_options(store.endpoint)}
    if "@" in uri:
        del options["account_name"]  # which the URI names
    lost = store.add("lost", "PUT", "clicks-0", 1)
    place = f"{uri}/{tmp_path.name}"
    for replayed in (False, True):
        frame: Any = Frame.of(A, B, tasks=4)
        told = write_parquet_ranges(frame, batch(A, B, replayed=replayed), place, storage_options=options)
        assert told == (("clicks-0-10-14.parquet", 4), ("clicks-1-5-8.parquet", 3))
    assert lost() == 1
    lake = fs.AzureFileSystem(**arrow_options(store.endpoint))
    files = [each.path for each in lake.get_file_info(fs.FileSelector(f"{CONTAINER}/{tmp_path.name}"))]
    assert sorted(Path(each).name for each in files) == [each.file for each in told]
    read = pa.concat_tables(pyarrow.parquet.read_table(each, filesystem=lake) for each in sorted(files))
    assert [tuple(row.values()) for row in read.to_pylist()] == records(A, B)


@pytest.mark.parametrize("split", [(), ("word",)])
@pytest.mark.parametrize("place", [f"az://{CONTAINER}", f"abfss://{HOST}"])
def test_f249_a_delta_table_in_azure_has_each_record_once_though_answers_are_lost(
    store: StoreApart, place: str, split: tuple[str, ...], tmp_path: Path
) -> None:
    uri, options = f"{place}/{tmp_path.name}", delta_options(store.endpoint)

    def write(*ranges: OffsetRange, **settings: Any) -> int:
        rows = by_word(*ranges, **settings)
        return write_delta(rows, batch(*ranges), uri, storage_options=options, partition_by=split)

    assert write(B) == 3
    met = [store.add(kind, "PUT", ".json", 1) for kind in ("busy", "lost")]
    assert (write(A), [each() for each in met]) == (4, [1, 1])
    assert (write(A, B), write(LONGER, on_write=once(lambda: write(A._replace(start=14, end=16))))) == (0, 4)
    assert found_in(uri, options) == records(LONGER, B)
    assert delta_ends(uri, storage_options=options)()(PA) == 20
    assert len(DeltaTable(uri, storage_options=options).partitions()) == (2 if split else 0)
