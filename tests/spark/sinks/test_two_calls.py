"""Two DataFrames of one batch for one table: the second one must not be taken for the batch that comes again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.sinks.frames import A, B, DeltaLog, Frame, batch, records
from tests.spark.sinks.test_iceberg import Warehouse
from zkcoord.errors import UsageError
from zkcoord.spark import write_delta, write_iceberg, write_sql
from zkcoord.spark.ranges import Batch
from zkcoord.spark.sinks import calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Sink = Callable[..., int]
LOST = "written before, by a call with other rows .* would be lost"


class Listed(Frame):
    """A DataFrame that brings its rows to the driver."""

    def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
        for row in self.rows.to_pylist():
            yield tuple(row.values())


def delta(folder: Path) -> Iterator[Sink]:
    yield partial(write_delta, table=folder / "t")


def iceberg(folder: Path) -> Iterator[Sink]:
    house = Warehouse(folder)
    yield partial(write_iceberg, table="db.clicks", catalog=house.catalog())
    house.close()


def sql(folder: Path) -> Iterator[Sink]:
    connect = partial(sqlite3.connect, folder / "t.db")
    with closing(connect()) as database:
        for table in ("clicks", "views"):
            database.execute(f'CREATE TABLE {table} (topic, "partition", "offset", n)')
        database.execute('CREATE TABLE ends (topic, "partition", next_offset, PRIMARY KEY (topic, "partition"))')
    yield partial(write_sql, connect=connect, table="clicks", offsets_table="ends")


@pytest.fixture(params=[delta, iceberg, sql])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    yield from request.param(tmp_path)


def test_f341_other_rows_of_a_batch_are_refused_and_the_same_rows_are_left_out(sink: Sink) -> None:
    to = batch(A, B)
    assert sink(Listed.of(A), to) == 4
    with pytest.raises(UsageError, match=LOST):
        sink(Listed.of(B), to)
    with pytest.raises(UsageError, match=LOST):
        sink(Listed.of(A, B), to)
    assert sink(Listed.of(A), to) == 0, "the same rows, as a program that tries a batch again writes them"


def test_f341_a_batch_that_comes_again_is_compared_with_its_own_calls_alone(sink: Sink) -> None:
    """A batch has another object when it comes again, and nobody knows what its first rows were."""
    sink(Listed.of(A), batch(A, B))
    again = batch(A, B)
    assert sink(Listed.of(B), again) == 0
    with pytest.raises(UsageError, match=LOST):
        sink(Listed.of(A), again)


def test_f341_one_batch_goes_into_tables_with_ends_of_their_own(tmp_path: Path) -> None:
    to, house = batch(A, B), Warehouse(tmp_path)
    for name in ("a", "b"):
        assert write_delta(Listed.of(A if name == "a" else B), to, tmp_path / name) > 0
    house.write(A._replace(end=11))
    table = house.load()
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    catalog = house.catalog()
    assert write_iceberg(Listed.of(A), to, "db.clicks", catalog=catalog) == 3
    assert write_iceberg(Listed.of(B), to, "db.clicks", catalog=catalog, branch="audit") == 3
    house.close()


def test_f341_two_tables_with_one_table_of_offsets_are_told_apart(tmp_path: Path) -> None:
    (write,), to, frame = sql(tmp_path), batch(A, B), Listed.of(A, B)
    assert write(frame, to) == 7
    with pytest.raises(UsageError, match=r"into clicks.*into views.*would be lost"):
        write(frame, to, table="views")


def test_f341_nothing_is_kept_of_a_batch_that_is_over(tmp_path: Path) -> None:
    before = len(calls._calls)
    to: Batch | None = batch(A)
    write_delta(Frame.of(A), to, tmp_path / "t")  # type: ignore[arg-type]
    assert len(calls._calls) == before + 1
    del to
    assert len(calls._calls) == before


def test_f341_spark_tells_whether_two_dataframes_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(records(A, B), "topic string, partition int, offset bigint, n bigint")
    to = batch(A, B)
    for written in (4, 0):
        assert write_delta(rows.where("partition = 0"), to, tmp_path / "t") == written
    with pytest.raises(UsageError, match=LOST):
        write_delta(rows.where("partition = 1"), to, tmp_path / "t")
    with pytest.raises(UsageError, match=LOST):
        write_delta(rows, to, tmp_path / "t", transform=lambda found: found.where("partition = 1"))
    assert write_delta(rows, to, tmp_path / "t", transform=lambda found: found.where("partition = 0")) == 0
    assert DeltaLog(tmp_path / "t").rows() == records(A)
