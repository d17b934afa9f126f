"""`write_sql` on a PostgreSQL: typed columns, its placeholders and upsert, and writers that meet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.spark.fakes import DEADLINE_S, InThread
from tests.spark.test_sink_sql import CLICKS, OFFSETS, A, B, Frame, Rows, batch, records
from tests.waiting import wait_until
from zkcoord.errors import UsageError
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks.sql import write_sql

pytestmark = pytest.mark.postgres
TABLES = """
DROP TABLE IF EXISTS clicks, clicks_offsets;
CREATE TABLE clicks (topic text, "partition" int, "offset" bigint, n bigint{key});
CREATE TABLE clicks_offsets (topic text, "partition" int, next_offset bigint, PRIMARY KEY (topic, "partition"));
"""
KEY = ', PRIMARY KEY (topic, "partition", "offset")'
UPSERT = (
    "INSERT INTO clicks VALUES (%s, %s, %s, %s) "
    'ON CONFLICT (topic, "partition", "offset") DO UPDATE SET n = excluded.n + clicks.n'
)


class Meeting(Frame):
    """Rows that wait once for another writer's first row, so that both writers have begun before one of them ends."""

    def __init__(self, barrier: threading.Barrier, *ranges: OffsetRange) -> None:
        super().__init__(*ranges)
        self._barrier: threading.Barrier | None = barrier

    def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            barrier.wait(DEADLINE_S)
        return super().toLocalIterator()


class Database:
    """One database, which the tests share."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.isolation: Any = None

    def connect(self) -> Any:
        import psycopg

        made = psycopg.connect(self._where)
        made.isolation_level = self.isolation
        return made

    def ask(self, text: str) -> Rows:
        with self.connect() as connection:
            cursor = connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    def write(self, *ranges: OffsetRange, frame: Frame | None = None, **settings: Any) -> int:
        sent: Any = frame or Frame(*ranges)
        return write_sql(sent, batch(*ranges), self.connect, "clicks", placeholder="%s", **settings)


@pytest.fixture
def make(postgres: str) -> Callable[..., Database]:
    def made(key: str = KEY) -> Database:
        database = Database(postgres)
        database.ask(TABLES.format(key=key))
        return database

    return made


def test_a_keyed_table_holds_each_record_once(make: Callable[..., Database]) -> None:
    database = make()
    assert database.write(A, B) == 7
    database.write(A._replace(start=12, end=20), B)
    assert database.ask(CLICKS) == records(A._replace(end=20), B)
    with pytest.raises(RuntimeError, match="cancelled"):
        database.write(OffsetRange("t", 2, 0, 9), frame=Frame(OffsetRange("t", 2, 0, 9), failing=5))
    assert database.ask(CLICKS) == records(A._replace(end=20), B)


def test_nulls_bytes_and_times_of_a_dataframe_come_as_they_are(make: Callable[..., Database]) -> None:
    database = make()
    database.ask("ALTER TABLE clicks ADD COLUMN v bytea, ADD COLUMN at timestamptz, ADD COLUMN word text")
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = [("t", 0, 10, 7, bytearray(b"\x00a"), at, "one"), ("t", 0, 11, None, None, None, None)]

    class Typed(Frame):
        def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
            return iter(rows)

    frame = Typed(columns=["topic", "partition", "offset", "n", "v", "at", "word"])
    for _ in range(2):
        database.write(A, frame=frame)
    found = database.ask(CLICKS)
    assert found == [(*rows[0][:4], b"\x00a", at, "one"), rows[1]]


def test_an_upsert_replaces_what_is_there(make: Callable[..., Database]) -> None:
    database = make()
    database.write(B)
    database.write(B, statement=UPSERT)
    assert database.ask(CLICKS) == [(*row[:3], 2 * row[3]) for row in records(B)]


def test_rows_and_offsets_are_one_transaction(make: Callable[..., Database]) -> None:
    database = make(key="")
    with pytest.raises(RuntimeError, match="cancelled"):
        database.write(A, B, frame=Frame(A, B, failing=5), offsets_table="clicks_offsets")
    assert (database.ask(CLICKS), database.ask(OFFSETS)) == ([], [])
    assert database.write(A, B, offsets_table="clicks_offsets") == 7
    assert database.write(A._replace(start=12, end=20), B, offsets_table="clicks_offsets") == 6
    assert database.ask(CLICKS) == records(A._replace(end=20), B)
    assert database.ask(OFFSETS) == [("t", 0, 20), ("t", 1, 8)]


@pytest.mark.parametrize("isolation", [None, "REPEATABLE_READ", "SERIALIZABLE"])
@pytest.mark.parametrize("again", [False, True], ids=["new partitions", "known partitions"])
def test_of_two_that_write_the_same_offsets_at_once_one_writes(
    make: Callable[..., Database], isolation: str | None, again: bool
) -> None:
    """Their ranges come in different orders. If each locked one range and then waited for the other, they would wait
    for ever."""
    database = make(key="")
    if isolation is not None:
        import psycopg

        database.isolation = psycopg.IsolationLevel[isolation]
    if again:
        database.write(A._replace(start=0, end=10), B._replace(start=0, end=5), offsets_table="clicks_offsets")
    before = database.ask(CLICKS)
    writers = [InThread(lambda r=r: database.write(*r, offsets_table="clicks_offsets")) for r in ((A, B), (B, A))]
    assert sorted(each.result() for each in writers) == [0, 7]
    assert database.ask(CLICKS) == sorted(before + records(A, B))
    assert database.ask(OFFSETS) == [("t", 0, 14), ("t", 1, 8)]


@pytest.mark.parametrize("isolation", [None, "SERIALIZABLE"])
def test_two_that_write_the_same_rows_of_a_keyed_table_at_once_both_succeed(
    make: Callable[..., Database], isolation: str | None
) -> None:
    database = make()
    if isolation is not None:
        import psycopg

        database.isolation = psycopg.IsolationLevel[isolation]
    barrier = threading.Barrier(2)
    writers = [
        InThread(lambda r=r: database.write(*r, frame=Meeting(barrier, *r)))  # type: ignore[misc]
        for r in ((A, B), (A, B))
    ]
    assert [each.result() for each in writers] == [7, 7]
    assert database.ask(CLICKS) == records(A, B)


def begun(database: Database) -> tuple[Any, InThread]:
    """A slow writer has written one row without committing it. A batch with this row and an earlier one waits for
    it."""
    import psycopg

    straggler = psycopg.connect(database._where)
    straggler.execute("INSERT INTO clicks VALUES ('t', 0, 11, 0)")
    writing = InThread(lambda: database.write(A))
    waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    wait_until(lambda: database.ask(waits) == [(True,)], "the batch waits for the row")
    return straggler, writing


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_stragglers_open_transaction_is_waited_for(make: Callable[..., Database], ends: str) -> None:
    database = make()
    straggler, writing = begun(database)
    assert not writing.done
    getattr(straggler, ends)()
    straggler.close()
    assert writing.result() == 4
    expected = [row if row[2] != 11 or ends == "rollback" else (*row[:3], 0) for row in records(A)]
    assert database.ask(CLICKS) == expected


def test_a_deadlock_with_a_straggler_is_survived(make: Callable[..., Database]) -> None:
    import psycopg

    database = make()
    straggler, writing = begun(database)
    with contextlib.suppress(psycopg.errors.DeadlockDetected):  # PostgreSQL ends one of the two
        straggler.execute("INSERT INTO clicks VALUES ('t', 0, 10, 0)")
        straggler.commit()
    straggler.close()
    assert writing.result() == 4
    assert [row[:3] for row in database.ask(CLICKS)] == [row[:3] for row in records(A)]


def test_a_rule_of_the_tables_own_that_is_broken_is_raised_at_once(make: Callable[..., Database]) -> None:
    database = make()
    database.ask("ALTER TABLE clicks ADD CHECK (n < 80)")
    frame = Frame(A)
    with pytest.raises(Exception, match="violates check constraint"):
        database.write(A, frame=frame)
    assert (frame.read, database.ask(CLICKS)) == (4, [])


NUMBER = "ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 1"
FIRST, AGAIN = A._replace(start=0, end=30, incarnation=1), A._replace(start=0, end=10, incarnation=2)


def test_f62_an_old_table_of_offsets_takes_a_recreated_topic_once_it_has_the_column(
    make: Callable[..., Database],
) -> None:
    database = make(key="")
    assert database.write(FIRST, offsets_table="clicks_offsets") == 30
    statement = f"ALTER TABLE clicks_offsets {NUMBER}"
    with pytest.raises(UsageError, match=statement):
        database.write(AGAIN, offsets_table="clicks_offsets")
    database.ask(statement)
    writers = [InThread(lambda: database.write(AGAIN, offsets_table="clicks_offsets")) for _ in range(2)]
    assert sorted(each.result() for each in writers) == [0, 10]
    assert database.ask(CLICKS) == sorted(records(FIRST) + records(AGAIN))
    assert database.ask(OFFSETS) == [("t", 0, 10, 2)]
    with pytest.raises(UsageError, match="has incarnation 2 of t-0, and this batch is of incarnation 1"):
        database.write(FIRST, offsets_table="clicks_offsets")


def test_f62_an_old_keyed_table_takes_a_recreated_topic_once_its_key_has_the_column(
    make: Callable[..., Database],
) -> None:
    database = make()
    assert database.write(FIRST) == 30
    with pytest.raises(UsageError, match=f"ALTER TABLE clicks {NUMBER}"):
        database.write(AGAIN)
    database.ask(f"ALTER TABLE clicks {NUMBER}")
    database.ask("ALTER TABLE clicks DROP CONSTRAINT clicks_pkey")
    database.ask('ALTER TABLE clicks ADD PRIMARY KEY (topic, incarnation, "partition", "offset")')
    for _ in range(2):
        assert (database.write(FIRST), database.write(AGAIN)) == (30, 10)
    assert database.ask("SELECT incarnation, count(*) FROM clicks GROUP BY 1 ORDER BY 1") == [(1, 30), (2, 10)]


def test_f62_rows_of_a_fresh_batch_that_are_there_are_told(
    make: Callable[..., Database], caplog: pytest.LogCaptureFixture
) -> None:
    database = make()
    for _ in range(2):
        database.write(FIRST)
    assert [each.__dict__["zkcoord_event"] for each in caplog.records] == ["rows_passed_over"]
    assert "30 of 30 rows for clicks" in caplog.text
