"""A table has each record once, even if records are written again, by other writers, and in other batches."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.sinks.sql import _refuse_autocommit, write_sql
from zkcoord.spark.sinks.sql_target import CHUNK_ROWS, Words

COLUMNS = ["topic", "partition", "offset", "n"]
A, B = OffsetRange("t", 0, 10, 14), OffsetRange("t", 1, 5, 8)
Rows = list[tuple[Any, ...]]


class Frame:
    """The methods of a DataFrame that the sink uses. `failing`: it fails after this number of rows."""

    def __init__(self, *ranges: OffsetRange, columns: list[str] = COLUMNS, failing: int | None = None) -> None:
        self.columns = columns
        self._ranges, self._failing = ranges, failing
        self.read = 0

    def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
        for each in self._ranges:
            for offset in range(each.start, each.end):
                if self.read == self._failing:
                    raise RuntimeError("the job was cancelled")
                self.read += 1
                yield (each.topic, each.partition, offset, offset * 7)


class Database:
    """One file; `between` is called once, after the next SELECT."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.between: list[Callable[[], object]] = []
        self.opened: list[sqlite3.Connection] = []

    def create(self, text: str) -> None:
        connection = sqlite3.connect(self.path)
        connection.executescript(text)
        connection.close()

    def connect(self) -> Any:
        made = sqlite3.connect(self.path, factory=Watched)
        made.database = self
        self.opened.append(made)
        return made

    def rows(self, question: str) -> Rows:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(question).fetchall()
        finally:
            connection.close()


class Watched(sqlite3.Connection):
    database: Database

    def cursor(self, *_: Any, **__: Any) -> Any:
        return super().cursor(WatchedCursor)


class WatchedCursor(sqlite3.Cursor):
    def fetchone(self) -> Any:
        found = super().fetchone()
        for each in self.connection.database.between[:1]:  # type: ignore[attr-defined]
            self.connection.database.between.remove(each)  # type: ignore[attr-defined]
            each()
        return found


def batch(*ranges: OffsetRange) -> Batch:
    return Batch(id="b", seq=0, generation=1, ranges=ranges)


def records(*ranges: OffsetRange) -> Rows:
    return [
        (each.topic, each.partition, offset, offset * 7) for each in ranges for offset in range(each.start, each.end)
    ]


@pytest.fixture
def keyed(tmp_path: Path) -> Database:
    made = Database(tmp_path / "keyed.db")
    made.create('CREATE TABLE clicks (topic, "partition", "offset", n, PRIMARY KEY (topic, "partition", "offset"))')
    return made


@pytest.fixture
def plain(tmp_path: Path) -> Database:
    """A table without any key, and its offsets."""
    made = Database(tmp_path / "plain.db")
    made.create(
        'CREATE TABLE clicks (topic, "partition", "offset", n);'
        'CREATE TABLE clicks_offsets (topic, "partition", next_offset, PRIMARY KEY (topic, "partition"))'
    )
    return made


def write(database: Database, *ranges: OffsetRange, frame: Frame | None = None, **settings: Any) -> int:
    return write_sql(frame or Frame(*ranges), batch(*ranges), database.connect, "clicks", **settings)  # type: ignore[arg-type]


CLICKS = 'SELECT * FROM clicks ORDER BY topic, "partition", "offset"'
OFFSETS = "SELECT * FROM clicks_offsets ORDER BY 1, 2"


def test_two_writers_of_the_same_partitions_lock_their_lines_in_the_same_order(plain: Database) -> None:
    ranges = [OffsetRange("t", number, 0, 2) for number in (3, 1, 2, 0)]
    write(plain, *ranges, offsets_table="clicks_offsets")
    assert plain.rows('SELECT "partition" FROM clicks_offsets ORDER BY rowid') == [(0,), (1,), (2,), (3,)]


# ---- keyed


def test_a_table_with_the_key_holds_each_record_once_in_whatever_ranges_it_comes(keyed: Database) -> None:
    assert write(keyed, A, B) == 7
    write(keyed, A._replace(start=12, end=20), B)
    assert keyed.rows(CLICKS) == records(A._replace(end=20), B)
    with pytest.raises(sqlite3.ProgrammingError):
        keyed.opened[0].execute("SELECT 1")  # closed


def test_rows_that_fail_half_way_leave_nothing(keyed: Database) -> None:
    large = OffsetRange("t", 0, 0, 3 * CHUNK_ROWS)
    with pytest.raises(RuntimeError, match="cancelled"):
        write(keyed, large, frame=Frame(large, failing=CHUNK_ROWS + 1))
    assert keyed.rows(CLICKS) == []
    assert write(keyed, large) == 3 * CHUNK_ROWS


def test_a_statement_of_ones_own_replaces_the_rows(keyed: Database) -> None:
    write(keyed, B)
    keyed.create("UPDATE clicks SET n = -1")
    write(keyed, B, statement="INSERT OR REPLACE INTO clicks VALUES (?, ?, ?, ?)")
    assert keyed.rows(CLICKS) == records(B)


def test_other_drivers_placeholders_and_quotes_are_spelled(keyed: Database) -> None:
    write(keyed, B, placeholder="?{}", quote="`")
    write(keyed, B, placeholder="?{}", quote="`")
    assert keyed.rows(CLICKS) == records(B)
    assert Words("%s", "`").move("o", ["next_offset", "incarnation"]) == (
        "UPDATE o SET `next_offset` = %s, `incarnation` = %s "
        "WHERE `topic` = %s AND `partition` = %s AND `next_offset` = %s AND `incarnation` = %s"
    )
    assert Words("?", '"').insert("t", ['a"b']) == 'INSERT INTO t ("a""b") VALUES (?)'


# ---- offsets in the same transaction


def in_one(database: Database, *ranges: OffsetRange, **settings: Any) -> int:
    return write(database, *ranges, offsets_table="clicks_offsets", **settings)


def test_rows_and_offsets_are_one_transaction(plain: Database) -> None:
    with pytest.raises(RuntimeError, match="cancelled"):
        in_one(plain, A, B, frame=Frame(A, B, failing=5))
    assert (plain.rows(CLICKS), plain.rows(OFFSETS)) == ([], [])
    assert in_one(plain, A, B) == 7
    assert (plain.rows(CLICKS), plain.rows(OFFSETS)) == (records(A, B), [("t", 0, 14), ("t", 1, 8)])


def test_rows_written_before_are_neither_written_again_nor_read(plain: Database) -> None:
    in_one(plain, A, B)
    again = Frame(A, B)
    assert (in_one(plain, A, B, frame=again), again.read) == (0, 0)
    assert in_one(plain, A._replace(start=12, end=20), B) == 6  # other bounds: only the missing rows of A are written
    assert plain.rows(CLICKS) == records(A._replace(end=20), B)
    assert plain.rows(OFFSETS) == [("t", 0, 20), ("t", 1, 8)]


def test_one_that_slept_and_was_replaced_writes_nothing(plain: Database) -> None:
    in_one(plain, A)
    successor = A._replace(start=14, end=20)
    plain.between = [lambda: in_one(plain, successor)]
    assert in_one(plain, A._replace(start=14, end=17)) == 0
    assert plain.rows(CLICKS) == records(A, successor)
    assert plain.rows(OFFSETS) == [("t", 0, 20)]


def test_two_groups_at_one_table_are_told(plain: Database) -> None:
    in_one(plain, A)
    ends = iter(range(15, 40))

    def other() -> None:
        plain.create(f"UPDATE clicks_offsets SET next_offset = {next(ends)}")
        plain.between.append(other)

    plain.between = [other]
    with pytest.raises(UnavailableError, match="one group's alone"):
        in_one(plain, A._replace(start=14, end=100))
    assert plain.rows(CLICKS) == records(A)


def test_f347_records_that_a_restored_database_lacks_are_told(
    plain: Database, caplog: pytest.LogCaptureFixture
) -> None:
    in_one(plain, A, B)
    in_one(plain, A._replace(start=14, end=20))
    assert caplog.records == []
    plain.create(
        'DELETE FROM clicks WHERE offset > 13; UPDATE clicks_offsets SET next_offset = 14 WHERE "partition" = 0'
    )
    in_one(plain, A._replace(start=20, end=24), B._replace(start=8, end=9))
    assert [each.__dict__["zkcoord_event"] for each in caplog.records] == ["rows_missing"]
    assert "offsets of t-0 from 14 to 20 are not in the table, and were not read" in caplog.text


def test_a_row_that_the_database_never_takes_fails_with_the_databases_own_error(plain: Database) -> None:
    """By its error it may have met another writer's row, so it is tried again, but not for ever."""
    plain.create('DROP TABLE clicks; CREATE TABLE clicks (topic, "partition", "offset", n CHECK (n < 80))')
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        in_one(plain, A)
    assert (plain.rows(CLICKS), plain.rows(OFFSETS)) == ([], [])


# ---- what is refused


def test_the_sink_needs_the_key_of_a_record(keyed: Database) -> None:
    with pytest.raises(UsageError, match="no column 'offset'"):
        write(keyed, A, frame=Frame(A, columns=["topic", "partition", "n"]))


def test_the_look_at_a_tables_columns_leaves_no_transaction_open(keyed: Database) -> None:
    """The driver's connection then waits for the batch's rows, and for all its tasks: a database may end it."""
    done: list[str] = []

    class Connection(sqlite3.Connection):
        def rollback(self) -> None:
            done.append("rollback")

    class Read(Frame):
        def toLocalIterator(self) -> Iterator[tuple[Any, ...]]:
            done.append("rows")
            return super().toLocalIterator()

    write_sql(Read(A), batch(A), lambda: sqlite3.connect(keyed.path, factory=Connection), "clicks")  # type: ignore[arg-type]
    assert done == ["rollback", "rows"]


def test_a_connection_in_place_of_its_function_is_refused(keyed: Database) -> None:
    connection = keyed.connect()
    connection.close()
    for given in (connection, "postgresql://me:hidden@host/db"):
        with pytest.raises(UsageError, match=r"connect is a (Watched|str); give a function that opens a connection"):
            write_sql(Frame(A), batch(A), given, "clicks")  # type: ignore[arg-type]


def test_a_connection_that_commits_by_itself_is_refused(keyed: Database) -> None:
    class Committing(sqlite3.Connection):
        autocommit = True

    with pytest.raises(UsageError, match="commits by itself"):
        write_sql(
            Frame(A),  # type: ignore[arg-type]
            batch(A),
            lambda: sqlite3.connect(keyed.path, factory=Committing),
            "clicks",
        )
    assert keyed.rows(CLICKS) == []


class Asked(sqlite3.Connection):
    """A connection with the methods of PyMySQL and mysqlclient."""

    by_itself = False

    def autocommit(self, value: bool) -> None:
        self.by_itself = value

    def get_autocommit(self) -> bool:
        return self.by_itself


class Noted(sqlite3.Connection):
    """A connection of Snowflake's connector before version 5: it keeps what the server says with each answer."""

    by_itself = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._session_parameters: dict[str, bool] = {}

    def autocommit(self, mode: bool) -> None:
        self.by_itself = mode

    def cursor(self, *given: Any) -> Any:
        self._session_parameters["AUTOCOMMIT"] = self.by_itself
        return super().cursor(*given)


@pytest.mark.parametrize("kind", [sqlite3.Connection, Asked, Noted], ids=["sqlite3", "PyMySQL", "Snowflake"])
def test_f343_a_connection_that_commits_by_itself_in_its_drivers_own_way_is_refused(
    plain: Database, kind: type[sqlite3.Connection]
) -> None:
    """Before, the offsets of a batch that fails were committed, and its rows were never written."""

    def write_to(frame: Frame, *, by_itself: bool) -> int:
        connection = sqlite3.connect(plain.path, factory=kind)
        if by_itself and isinstance(connection, (Asked, Noted)):
            connection.autocommit(True)
        elif by_itself:
            connection.isolation_level = None
        return write_sql(frame, batch(A), lambda: connection, "clicks", offsets_table="clicks_offsets")  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="commits by itself"):
        write_to(Frame(A, failing=2), by_itself=True)
    assert (plain.rows(CLICKS), plain.rows(OFFSETS)) == ([], [])
    assert write_to(Frame(A), by_itself=False) == 4


def setter(mode: bool) -> None:
    """Stands for a driver's `autocommit`, where that is a function."""


@pytest.mark.parametrize(
    "driver",
    [
        {"autocommit": False, "isolation_level": None, "in_transaction": False},  # sqlite3 since Python 3.12
        {"isolation_level": None},  # psycopg has such a level, too: the server's default
        {"autocommit": False, "_session_parameters": {"AUTOCOMMIT": True}},
        {"autocommit": setter, "get_autocommit": lambda: False, "_session_parameters": {"AUTOCOMMIT": True}},
        {"autocommit": setter, "_session_parameters": {}},
    ],
    ids=["sqlite3", "psycopg", "an attribute", "a question", "a note"],
)
def test_a_connection_that_tells_that_it_does_not_commit_by_itself_is_believed(driver: dict[str, Any]) -> None:
    _refuse_autocommit(SimpleNamespace(**driver))


def test_a_key_that_exists_in_a_drivers_own_words_is_tried_again(keyed: Database) -> None:
    """MySQL's own driver says 23000 where PostgreSQL's says 23505."""

    class Overtaken(sqlite3.IntegrityError):
        sqlstate = "23000"

    left = [Overtaken("Duplicate entry")]

    class Connection(sqlite3.Connection):
        def commit(self) -> None:
            if left:
                raise left.pop()
            super().commit()

    made = sqlite3.connect(keyed.path, factory=Connection)
    assert write_sql(Frame(A), batch(A), lambda: made, "clicks") == 4  # type: ignore[arg-type]
    assert (left, keyed.rows(CLICKS)) == ([], records(A))
