"""A Delta table in an object store: the same promises as below a path, also when the store does not behave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.spark.sinks.faulty_store import StoreApart, store_apart
from tests.spark.sinks.frames import A, B, DeltaLog, Frame, batch, once, records
from tests.spark.sinks.s3_server import BUCKET, S3, delta_options
from zkcoord.spark import delta_ends, write_delta
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks import delta

pytestmark = [pytest.mark.spark, pytest.mark.s3]
PA, PB = "zkcoord/etl/clicks-0", "zkcoord/etl/clicks-1"
COMMIT = ".json"


class Table:
    """A table of one test."""

    def __init__(self, folder: Path, store: S3, endpoint: str) -> None:
        self._folder, self._store = folder, store
        self.uri, self.options = f"s3://{BUCKET}/{folder.name}", dict(delta_options(endpoint))

    def write(self, *ranges: OffsetRange, **settings: Any) -> int:
        frame = Frame.of(*ranges, **settings)
        return write_delta(frame, batch(*ranges), self.uri, storage_options=self.options)  # type: ignore[arg-type]

    def log(self) -> DeltaLog:
        return DeltaLog(self._store.download(self._folder.name, self._folder / "read"))


def by_word(*ranges: OffsetRange) -> Any:
    """The records, with a word each, by which a table is partitioned: every other one has none."""
    rows = Frame.of(*ranges).rows
    return Frame(rows.append_column("word", pa.array(["a b", None] * rows.num_rows).slice(0, rows.num_rows)))


@pytest.fixture
def faulty(s3: S3) -> Iterator[StoreApart]:
    with store_apart(s3.port) as store:
        yield store


@pytest.fixture
def table(tmp_path: Path, s3: S3, faulty: StoreApart) -> Table:
    return Table(tmp_path, s3, faulty.endpoint)


def test_each_record_is_in_the_store_once_however_a_batch_comes_again(table: Table) -> None:
    assert (table.write(A, B), table.write(A, B), table.write(B)) == (7, 0, 0)
    assert table.write(A._replace(start=12, end=20), B) == 6
    found = table.log()
    assert (found.rows(), found.ends) == (records(A._replace(end=20), B), {PA: 20, PB: 8})
    ends = delta_ends(table.uri, storage_options=table.options)()
    assert (ends(PA), ends(PB), ends("other")) == (20, 8, None)


def test_f164_files_in_a_store_of_a_program_that_died_before_its_commit_are_vacuumed(
    table: Table, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table in folders."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    def write(*ranges: OffsetRange) -> None:
        write_delta(by_word(*ranges), batch(*ranges), table.uri, storage_options=table.options, partition_by=["word"])

    def files() -> set[str]:
        return {each for each in s3.keys(tmp_path.name) if not each.startswith("_delta_log/")}

    write(B)
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(delta._Version, "commit", die)
        write(A)
    left = files() - table.log().files.keys()
    assert {each.split("/")[0] for each in left} == {"word=a%20b", "word=__HIVE_DEFAULT_PARTITION__"}
    write(A)
    found = DeltaTable(table.uri, storage_options=table.options)
    found.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert (files(), table.log().rows()) == (table.log().files.keys(), records(A, B))


def test_f227_files_of_a_partitioned_table_in_a_store_lie_in_folders_that_name_their_values(
    table: Table, s3: S3, tmp_path: Path
) -> None:
    rows = Frame.of(A).rows.append_column("word", pa.array(["a b/ü", None, "x%20=:#+?", "plain"]))
    frame: Any = Frame(rows)
    write_delta(frame, batch(A), table.uri, storage_options=table.options, partition_by=["word"])
    read = DeltaTable(table.uri, storage_options=table.options).to_pyarrow_table().sort_by("offset")
    assert read["word"].to_pylist() == rows["word"].to_pylist()
    files = [key for key in s3.keys(tmp_path.name) if key.endswith(".parquet") and not key.startswith("_delta_log")]
    assert any(key.startswith("word=plain/") for key in files)
    assert any(key.startswith("word=__HIVE_DEFAULT_PARTITION__/") for key in files)
    scanned = polars.scan_delta(table.uri, storage_options=table.options).sort("offset").collect()
    assert scanned["word"].to_list() == rows["word"].to_pylist()
    assert sorted(table.log().files) == sorted(files)


def test_of_two_that_write_the_same_ranges_to_the_store_at_once_one_writes(table: Table) -> None:
    table.write(OffsetRange("clicks", 0, 0, 10))
    assert table.write(A, B, on_write=once(lambda: table.write(B, A._replace(end=12)))) == 2
    assert table.log().rows() == records(A._replace(start=0), B)


@pytest.mark.parametrize(
    ("kind", "method", "where", "times"),
    [
        ("busy", "PUT", ".parquet", 2),
        ("busy", "PUT", COMMIT, 2),
        ("lost", "PUT", ".parquet", 1),
        ("lost", "PUT", COMMIT, 1),
        ("slow", "PUT", COMMIT, 1),
    ],
)
def test_f174_a_delta_table_on_a_failing_store_has_each_record_once(
    table: Table, faulty: StoreApart, kind: str, method: str, where: str, times: int
) -> None:
    table.write(B)
    met = faulty.add(kind, method, where, times, wait_s=1.0)
    assert table.write(A) == 4
    assert met() == times
    assert table.write(A, B) == 0
    found = table.log()
    assert (found.rows(), found.ends) == (records(A, B), {PA: 14, PB: 8})


@pytest.mark.parametrize(
    ("kind", "method", "where", "times"),
    [
        ("busy", "PUT", "a%2520b", 2),
        ("busy", "PUT", COMMIT, 2),
        ("lost", "PUT", "a%2520b", 1),
        ("lost", "PUT", COMMIT, 1),
        ("slow", "PUT", "a%2520b", 1),
        ("lost", "GET", COMMIT, 1),
    ],
)
def test_f248_a_partitioned_delta_table_on_a_failing_store_has_each_record_once(
    table: Table, faulty: StoreApart, kind: str, method: str, where: str, times: int
) -> None:
    write_delta(by_word(B), batch(B), table.uri, storage_options=table.options, partition_by=["word"])
    met = faulty.add(kind, method, where, times, wait_s=1.0)
    assert write_delta(by_word(A), batch(A), table.uri, storage_options=table.options) == 4
    assert met() == times
    assert write_delta(by_word(A, B), batch(A, B), table.uri, storage_options=table.options) == 0
    found = table.log()
    assert (found.rows(), found.ends) == (records(A, B), {PA: 14, PB: 8})
    scanned = polars.scan_delta(table.uri, storage_options=table.options).sort("partition", "offset").collect()
    assert scanned["word"].to_list() == by_word(A, B).rows["word"].to_pylist()


def test_f248_a_batch_with_one_refused_folder_leaves_no_record_and_comes_again_whole(
    table: Table, faulty: StoreApart, s3: S3
) -> None:
    write_delta(by_word(B), batch(B), table.uri, storage_options=table.options, partition_by=["word"])
    refused = faulty.add("busy", "PUT", "__HIVE", 1_000)
    impatient = {**table.options, "max_retries": "1"}
    with pytest.raises(OSError, match=r"503|SlowDown"):
        write_delta(by_word(A), batch(A), table.uri, storage_options=impatient)
    assert refused() > 1
    assert (table.log().rows(), table.log().ends) == (records(B), {PB: 8})
    assert write_delta(by_word(A), batch(A), table.uri, storage_options=delta_options(s3.endpoint)) == 4
    assert (table.log().rows(), table.log().ends) == (records(A, B), {PA: 14, PB: 8})


def test_a_table_in_the_store_that_was_restored_is_filled_up_again(table: Table) -> None:
    table.write(A)
    kept = DeltaTable(table.uri, storage_options=table.options).version()
    table.write(A._replace(start=14, end=20))
    DeltaTable(table.uri, storage_options=table.options).restore(kept)
    assert delta_ends(table.uri, storage_options=table.options)()(PA) == 14
    assert (table.write(A._replace(end=20)), table.write(A._replace(end=20))) == (6, 0)
    assert table.log().rows() == records(A._replace(end=20))
