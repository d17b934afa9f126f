"""An Iceberg table whose files lie in an object store: the same promises as below a path, also when the store fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.sinks.faulty_store import StoreApart, store_apart
from tests.spark.sinks.frames import TYPES, A, B, Frame, Rows, batch, once, records
from tests.spark.sinks.s3_server import BUCKET, S3, iceberg_options
from zkcoord.spark import iceberg_ends, write_iceberg
from zkcoord.spark.ranges import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.s3]
PA, PB = "zkcoord/etl/clicks-0", "zkcoord/etl/clicks-1"
NAME = "db.clicks"


class House:
    """A catalog in SQLite, and a table of one test in the store."""

    def __init__(self, folder: Path, store: S3, endpoint: str) -> None:
        self._folder, self._store = folder, store
        self._where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://{BUCKET}/{folder.name}"}
        self._where |= iceberg_options(endpoint)
        self._made: list[SqlCatalog] = []
        catalog = self.catalog()
        catalog.create_namespace("db")
        catalog.create_table(NAME, TYPES)

    def catalog(self) -> SqlCatalog:
        """One of another program's."""
        self._made.append(SqlCatalog("tests", **self._where))
        return self._made[-1]

    def close(self) -> None:
        for each in self._made:
            each.close()

    def write(self, *ranges: OffsetRange, **settings: Any) -> int:
        frame = Frame.of(*ranges, **settings)
        return write_iceberg(frame, batch(*ranges), NAME, catalog=self.catalog())

    def load(self) -> Any:
        return self.catalog().load_table(NAME)

    def ends(self) -> list[int | None]:
        found = iceberg_ends(NAME, catalog=self.catalog())()
        return [found(PA), found(PB)]

    def rows(self) -> Rows:
        """The rows of the files that the table names, read by DuckDB."""
        prefix = f"s3://{BUCKET}/{self._folder.name}/"
        named = [task.file.file_path.removeprefix(prefix) for task in self.load().scan().plan_files()]
        copies = self._store.download(self._folder.name, self._folder / "copies")
        files = [str(copies / name) for name in named]
        question = f'SELECT topic, "partition", "offset", n FROM read_parquet({files!r}) ORDER BY ALL'
        return [*duckdb.sql(question).fetchall()]


@pytest.fixture
def faulty(s3: S3) -> Iterator[StoreApart]:
    with store_apart(s3.port) as store:
        yield store


@pytest.fixture
def house(tmp_path: Path, s3: S3, faulty: StoreApart) -> Iterator[House]:
    made = House(tmp_path, s3, faulty.endpoint)
    yield made
    made.close()


def test_each_record_is_in_an_iceberg_table_in_the_store_once_however_a_batch_comes_again(house: House) -> None:
    assert (house.write(A, B), house.write(A, B), house.write(B)) == (7, 0, 0)
    assert house.write(A._replace(start=12, end=20), B) == 6
    assert (house.rows(), house.ends()) == (records(A._replace(end=20), B), [20, 8])


def test_of_two_that_write_the_same_ranges_to_iceberg_in_the_store_at_once_one_writes(house: House) -> None:
    house.write(OffsetRange("clicks", 0, 0, 10))
    assert house.write(A, B, on_write=once(lambda: house.write(B, A._replace(end=12)))) == 2
    assert house.rows() == records(A._replace(start=0), B)


@pytest.mark.parametrize(
    ("kind", "method", "where", "times"),
    [
        ("busy", "PUT", ".parquet", 2),
        ("busy", "PUT", ".avro", 2),
        ("busy", "PUT", ".metadata.json", 2),
        ("busy", "GET", ".metadata.json", 2),
        ("lost", "PUT", ".parquet", 1),
        ("lost", "PUT", ".avro", 1),
        ("lost", "PUT", ".metadata.json", 1),
        ("slow", "PUT", ".metadata.json", 1),
    ],
)
def test_f174_an_iceberg_table_on_a_failing_store_has_each_record_once(
    house: House, faulty: StoreApart, kind: str, method: str, where: str, times: int
) -> None:
    house.write(B)
    met = faulty.add(kind, method, where, times, wait_s=1.0)
    assert house.write(A) == 4
    assert met() == times
    assert house.write(A, B) == 0
    assert (house.rows(), house.ends()) == (records(A, B), [14, 8])


def test_an_iceberg_table_in_the_store_that_was_rolled_back_is_filled_up_again(house: House) -> None:
    house.write(A)
    kept = house.load().current_snapshot().snapshot_id
    house.write(A._replace(start=14, end=20))
    house.load().manage_snapshots().rollback_to_snapshot(kept).commit()
    assert house.ends() == [14, None]
    assert (house.write(A._replace(end=20)), house.write(A._replace(end=20))) == (6, 0)
    assert house.rows() == records(A._replace(end=20))


def test_others_append_to_an_iceberg_table_in_the_store_meanwhile(house: House) -> None:
    def others() -> None:
        house.load().append(pa.table([["other"], [0], [0], [0]], TYPES))

    assert house.write(A, on_write=once(others)) == 4
    assert [row for row in house.rows() if row[0] == "clicks"] == records(A)
