"""`write_sql` in tasks: each record is there once, even if tasks run twice, at the same time, or not at all."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.fakes import InThread
from tests.spark.test_real_postgres import TABLES, Database
from tests.spark.test_sink_sql import CLICKS, COLUMNS, OFFSETS, A, B, batch, records
from zkcoord.errors import UsageError
from zkcoord.spark import write_sql
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks.by_value import by_value
from zkcoord.spark.sinks.sql_target import Target, Words
from zkcoord.spark.sinks.sql_tasks import by_partition, ours, write_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET = Target(words=Words("%s", '"'), table="clicks", offsets_table="clicks_offsets", statement=None, numbered=False)


def arrow(*ranges: OffsetRange) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(zip(COLUMNS, zip(*records(*ranges), strict=True), strict=True)))


def task(database: Any, *ranges: OffsetRange, rows: Sequence[OffsetRange] | None = None) -> list[dict[str, Any]]:
    """Run a task with the rows of these ranges; return its result."""
    given = iter([arrow(*(ranges if rows is None else rows))])
    (told,) = write_ranges(TARGET, batch(*ranges), database.connect, COLUMNS, given)
    return [{key: value for key, value in row.items() if value} for row in told.to_pylist()]


def test_rows_are_cut_where_the_partition_changes_within_arrow_batches_and_between_them() -> None:
    parts = [arrow(A), arrow(A._replace(start=14, end=16), B), arrow(B._replace(start=8, end=9))]
    found = {at: [row["offset"] for each in rows for row in each.to_pylist()] for at, rows in by_partition(parts)}
    assert found == {A.topic_partition: [*range(10, 16)], B.topic_partition: [5, 6, 7, 8]}


def test_f186_rows_without_a_partition_take_no_other_rows_along() -> None:
    """Rows without a partition come from a join or a union. After sorting they come first."""
    keys = {"topic": [None, "t", "t", "t"], "partition": pa.array([0, None, 0, 0], pa.int32()), "offset": [1, 2, 3, 4]}
    found = {
        at: [row["offset"] for each in rows for row in each.to_pylist()]
        for at, rows in by_partition([arrow(B), pa.RecordBatch.from_pydict(keys)])
    }
    assert found[A.topic_partition] == [3, 4]
    assert found[B.topic_partition] == [5, 6, 7]


ALONE = """
import sys
for name in ("zkcoord", "kazoo"):
    sys.modules[name] = None
import pyarrow as pa
from pyspark import cloudpickle
run, given = cloudpickle.loads(sys.stdin.buffer.read())
for told in run(iter([pa.RecordBatch.from_pylist(given)])):
    print(told.to_pylist())
"""


def test_a_worker_that_writes_needs_no_zkcoord(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    path = tmp_path / "plain.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES.partition(";")[2].format(key=""))
    target = replace(TARGET, words=Words("?", '"'))
    run = by_value(partial(write_ranges, target, batch(A), partial(sqlite3.connect, path), COLUMNS), *ours())
    sent = cloudpickle.dumps((run, arrow(A).to_pylist()))
    told = subprocess.run([sys.executable, "-c", ALONE], input=sent, capture_output=True, check=True).stdout
    assert b"'sent': 4" in told
    with closing(sqlite3.connect(path)) as database:
        assert [*database.execute(OFFSETS)] == [("t", 0, 14)]


def test_a_task_that_spark_repeats_does_not_call_its_own_rows_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plain.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES.partition(";")[2].format(key=""))
    target = replace(TARGET, words=Words("?", '"'))
    told = []
    for attempt in (0, 0, 1):
        context = SimpleNamespace(get=lambda number=attempt: SimpleNamespace(attemptNumber=lambda: number))
        monkeypatch.setattr("pyspark.TaskContext", context)
        (rows,) = write_ranges(target, batch(A), partial(sqlite3.connect, path), COLUMNS, iter([arrow(A)]))
        told.append(rows.to_pylist()[0]["passed_over"])
    assert told == ["", "offsets of t-0 from 10 to 14", ""]


def test_f347_a_task_tells_of_records_that_a_restored_database_lacks(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    sqlite3.connect(path).executescript(TABLES.partition(";")[2].format(key="")).close()
    target, found = replace(TARGET, words=Words("?", '"')), []
    for each in (A, A._replace(start=20, end=22)):
        (told,) = write_ranges(target, batch(each), partial(sqlite3.connect, path), COLUMNS, iter([arrow(each)]))
        found += [row["skipped"] for row in told.to_pylist()]
    assert found == ["", "offsets of t-0 from 14 to 20"]


@pytest.fixture
def database(postgres: str) -> Database:
    made = Database(postgres)
    made.ask(TABLES.format(key=""))
    return made


@pytest.mark.postgres
def test_f166_a_failed_range_leaves_the_others_whole_and_is_written_next_time(
    database: Database,
) -> None:
    database.ask("ALTER TABLE clicks ADD CONSTRAINT low CHECK (n < 60)")
    with pytest.raises(Exception, match="violates check constraint"):
        task(database, B, A)
    assert (database.ask(CLICKS), database.ask(OFFSETS)) == (records(B), [("t", 1, 8)])
    database.ask("ALTER TABLE clicks DROP CONSTRAINT low")
    assert [each.get("sent") for each in task(database, B, A)] == [None, 4]
    assert database.ask(CLICKS) == records(A, B)
    assert database.ask(OFFSETS) == [("t", 0, 14), ("t", 1, 8)]


@pytest.mark.postgres
def test_f166_a_batch_split_over_heirs_and_a_program_that_wakes_up_write_each_record_once(database: Database) -> None:
    heirs = [InThread(lambda r=r: task(database, r)) for r in (A, B)]  # type: ignore[misc]
    zombie = InThread(lambda: task(database, B, A))
    for each in (*heirs, zombie):
        each.result()
    task(database, A._replace(start=12, end=20))  # with other bounds
    task(database, A, B)  # and the first task again, as a zombie
    assert database.ask(CLICKS) == records(A._replace(end=20), B)
    assert database.ask(OFFSETS) == [("t", 0, 20), ("t", 1, 8)]


@pytest.mark.postgres
def test_the_rows_of_an_earlier_incarnation_are_refused_and_other_ranges_written(database: Database) -> None:
    database.ask("ALTER TABLE clicks_offsets ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 1")
    database.ask("INSERT INTO clicks_offsets VALUES ('t', 0, 3, 2)")
    given = iter([arrow(A, B)])
    numbered = replace(TARGET, numbered=True)
    one = batch(A._replace(incarnation=1), B._replace(incarnation=1))
    (told,) = write_ranges(numbered, one, database.connect, COLUMNS, given)
    first, second = told.to_pylist()
    assert (first["refused"], second["sent"]) == ("UsageError", 3)
    assert "has incarnation 2 of t-0, and this batch is of incarnation 1" in first["why"]
    assert database.ask(CLICKS) == records(B)


def refuse_rows(monkeypatch: pytest.MonkeyPatch, frames: type[DataFrame]) -> None:
    """Let the driver have no row of a DataFrame with the column `n`, by any of Spark's ways."""

    def refusing(real: Any) -> Any:
        def way(self: Any, *given: Any, **settings: Any) -> Any:
            assert "n" not in self.columns, "rows pass through the driver"
            return real(self, *given, **settings)

        return way

    for name in ("collect", "toLocalIterator", "toPandas", "toArrow", "take", "head", "foreach"):
        monkeypatch.setattr(frames, name, refusing(getattr(frames, name)))


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("sockets_collected")
@pytest.mark.parametrize("tasks", [1, 3])
def test_rows_that_were_strewn_over_tasks_are_written_once_each_range_at_once(
    spark: SparkSession,
    database: Database,
    tasks: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No row passes through the driver: it is refused there."""
    empty, later = OffsetRange("t", 2, 0, 7), OffsetRange("u", 0, 0, 500)
    ranges = (A, B, empty, later)
    schema = "topic string, partition int, offset bigint, n bigint"
    frame = spark.createDataFrame(records(A, B, later), schema).repartition(5)
    refuse_rows(monkeypatch, type(frame))
    import psycopg

    where = partial(psycopg.connect, database._where)
    write = partial(write_sql, offsets_table="clicks_offsets", placeholder="%s", tasks=tasks)
    assert write(frame, batch(*ranges), where, "clicks") == 507
    assert [each.getMessage() for each in caplog.records if each.name.startswith("zkcoord")] == []
    assert write(frame, replace(batch(*ranges), replayed=True), where, "clicks") == 0
    assert database.ask(CLICKS) == records(A, B, later)
    assert database.ask(OFFSETS) == [("t", 0, 14), ("t", 1, 8), ("t", 2, 7), ("u", 0, 500)]
    database.ask("DELETE FROM clicks_offsets")
    database.ask("ALTER TABLE clicks_offsets ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 1")
    database.ask("INSERT INTO clicks_offsets VALUES ('t', 0, 3, 2)")
    with pytest.raises(UsageError, match="has incarnation 2 of t-0"):
        write(frame, batch(A._replace(incarnation=1)), where, "clicks")
