"""A topic is deleted and created again while a sink writes its records, so its offsets begin again at zero.

The sink writes the new records, or its error says what to do.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.spark.fakes import InThread, Job, World
from tests.spark.test_dependencies import draft
from tests.spark.test_sink_sql import OFFSETS, Database, Frame, batch, in_one, records, write
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UsageError
from zkcoord.member.callbacks import ApplicationCallbacks
from zkcoord.spark.ranges import Batch, OffsetRange, batch_id
from zkcoord.spark.sinks.files import name_files
from zkcoord.spark.sinks.spark_writer import footers_of
from zkcoord.spark.sinks.sql import write_sql
from zkcoord.spark.stream.dependencies import StreamPositions
from zkcoord.spark.stream.offsets import offset_of, ranges_in

FIRST = OffsetRange("t", 0, 0, 30, incarnation=1)
AGAIN = OffsetRange("t", 0, 0, 10, incarnation=2)
P0 = TopicPartition("t", 0)
NUMBERED = 'SELECT topic, incarnation, "partition", "offset", n FROM clicks ORDER BY 2, 3, 4'
ADD = "ALTER TABLE {} ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 1"


@pytest.fixture
def plain(tmp_path: Path) -> Database:
    """Tables as an earlier release has documented them: rows without a key, and their offsets."""
    made = Database(tmp_path / "plain.db")
    made.create(
        'CREATE TABLE clicks (topic, "partition", "offset", n);'
        'CREATE TABLE clicks_offsets (topic, "partition", next_offset, PRIMARY KEY (topic, "partition"))'
    )
    return made


@pytest.fixture
def keyed(tmp_path: Path) -> Database:
    """A keyed table as an earlier release has documented it."""
    made = Database(tmp_path / "keyed.db")
    made.create('CREATE TABLE clicks (topic, "partition", "offset", n, PRIMARY KEY (topic, "partition", "offset"))')
    return made


@pytest.fixture
def numbered(tmp_path: Path) -> Database:
    """A keyed table whose key has the incarnation."""
    made = Database(tmp_path / "numbered.db")
    made.create(
        'CREATE TABLE clicks (topic, "partition", "offset", n, incarnation,'
        ' PRIMARY KEY (topic, incarnation, "partition", "offset"))'
    )
    return made


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.__dict__["zkcoord_event"] for each in caplog.records if each.levelno >= logging.WARNING]


def both(*ranges: OffsetRange) -> list[tuple[Any, ...]]:
    return [(row[0], each.incarnation, *row[1:]) for each in ranges for row in records(each)]


# ---- a table of offsets


def test_f62_a_table_of_offsets_takes_the_records_of_a_recreated_topic(plain: Database) -> None:
    plain.create(ADD.format("clicks_offsets"))
    assert in_one(plain, FIRST) == 30
    assert in_one(plain, AGAIN) == 10
    assert in_one(plain, AGAIN._replace(start=5, end=15)) == 5
    assert plain.rows("SELECT count(*) FROM clicks") == [(45,)]
    assert plain.rows(OFFSETS) == [("t", 0, 15, 2)]


def test_the_column_of_the_incarnation_is_found_in_any_case_that_the_database_tells_it_in(plain: Database) -> None:
    """Databases report names that were not quoted in small letters, in capitals, or as they were written."""
    plain.create(ADD.format("clicks_offsets").replace("incarnation", "INCARNATION"))
    assert (in_one(plain, FIRST), in_one(plain, AGAIN)) == (30, 10)
    assert plain.rows(OFFSETS) == [("t", 0, 10, 2)]


def test_f62_an_old_table_of_offsets_serves_until_a_topic_is_recreated(plain: Database) -> None:
    assert in_one(plain, FIRST) == 30
    statement = ADD.format("clicks_offsets")
    with pytest.raises(UsageError, match=f"incarnation 2 of topic 't' in this group.*Add it: {statement}"):
        in_one(plain, AGAIN)
    assert plain.rows(OFFSETS) == [("t", 0, 30)]
    plain.create(statement)
    assert (in_one(plain, FIRST), in_one(plain, AGAIN)) == (0, 10)
    assert plain.rows(OFFSETS) == [("t", 0, 10, 2)]


def test_f62_the_rows_of_an_earlier_incarnation_than_the_tables_are_refused(plain: Database) -> None:
    plain.create(ADD.format("clicks_offsets"))
    in_one(plain, AGAIN)
    with pytest.raises(UsageError, match="has incarnation 2 of t-0, and this batch is of incarnation 1"):
        in_one(plain, FIRST)
    assert plain.rows(OFFSETS) == [("t", 0, 10, 2)]


def test_f62_a_range_whose_incarnation_nobody_told_goes_on_where_the_table_is(plain: Database) -> None:
    plain.create(ADD.format("clicks_offsets"))
    in_one(plain, AGAIN)
    assert in_one(plain, AGAIN._replace(end=14, incarnation=0)) == 4
    assert plain.rows(OFFSETS) == [("t", 0, 14, 2)]


def test_a_line_whose_incarnation_nobody_knows_is_given_the_batchs(plain: Database) -> None:
    """The column was added with another default than the documented one."""
    plain.create("ALTER TABLE clicks_offsets ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0")
    plain.create("INSERT INTO clicks_offsets VALUES ('t', 0, 4, 0)")
    assert in_one(plain, AGAIN) == 6
    assert plain.rows(OFFSETS) == [("t", 0, 10, 2)]
    with pytest.raises(UsageError, match="has incarnation 2 of t-0"):
        in_one(plain, FIRST)


def test_an_untold_incarnation_is_the_first_in_a_table_with_the_column(plain: Database, numbered: Database) -> None:
    plain.create(ADD.format("clicks_offsets"))
    assert in_one(plain, FIRST._replace(incarnation=0)) == 30
    assert plain.rows(OFFSETS) == [("t", 0, 30, 1)]
    assert in_one(plain, AGAIN) == 10
    write(numbered, FIRST._replace(incarnation=0))
    assert numbered.rows(NUMBERED) == both(FIRST)


def test_f62_fresh_rows_that_are_passed_over_are_told(plain: Database, caplog: pytest.LogCaptureFixture) -> None:
    """The group was deleted together with the topic, so its count of incarnations began again."""
    in_one(plain, FIRST)
    assert in_one(plain, FIRST._replace(end=10)) == 0
    assert told(caplog) == ["rows_passed_over"]
    assert "offsets of t-0 from 0 to 10" in caplog.text
    replayed = Batch(id="b", seq=0, generation=1, ranges=(FIRST,), replayed=True)
    write_sql(Frame(FIRST), replayed, plain.connect, "clicks", offsets_table="clicks_offsets")  # type: ignore[arg-type]
    assert told(caplog) == ["rows_passed_over"]


# ---- a key


def test_f62_a_keyed_table_has_the_incarnation_in_its_key(numbered: Database) -> None:
    for _ in range(2):
        assert (write(numbered, FIRST), write(numbered, AGAIN)) == (30, 10)
    assert numbered.rows(NUMBERED) == both(FIRST, AGAIN)


def test_f62_a_statement_of_ones_own_is_given_the_incarnation_last(numbered: Database) -> None:
    write(numbered, FIRST, AGAIN._replace(partition=1), statement="INSERT INTO clicks VALUES (?, ?, ?, ?, ?)")
    assert numbered.rows(NUMBERED) == both(FIRST, AGAIN._replace(partition=1))


class Filled(Frame):
    """A DataFrame with a column `incarnation`, which the sink uses instead of the batch's incarnation."""

    def __init__(self, *ranges: OffsetRange) -> None:
        super().__init__(*ranges, columns=["topic", "partition", "offset", "n", "incarnation"])

    def toLocalIterator(self) -> Any:
        return ((*row, 7) for row in super().toLocalIterator())


def test_f62_a_dataframe_may_have_the_incarnation_itself(numbered: Database) -> None:
    for _ in range(2):
        write(numbered, AGAIN, frame=Filled(AGAIN))
    assert numbered.rows(NUMBERED) == both(AGAIN._replace(incarnation=7))


@pytest.mark.parametrize("column", ["incarnation", "life"])
def test_a_statement_of_ones_own_is_given_the_dataframes_incarnation_once(tmp_path: Path, column: str) -> None:
    """The column of the table may have any name."""
    made = Database(tmp_path / "own.db")
    made.create(f'CREATE TABLE clicks (topic, "partition", "offset", n, {column})')
    write(made, AGAIN, frame=Filled(AGAIN), statement="INSERT INTO clicks VALUES (?, ?, ?, ?, ?)")
    assert made.rows(f"SELECT count(*), min({column}), max({column}) FROM clicks") == [(10, 7, 7)]


def test_a_table_of_offsets_must_know_the_incarnation_though_the_dataframe_does(plain: Database) -> None:
    plain.create("ALTER TABLE clicks ADD COLUMN incarnation")
    with pytest.raises(UsageError, match=f"Add it: {ADD.format('clicks_offsets')}"):
        write(plain, AGAIN, frame=Filled(AGAIN), offsets_table="clicks_offsets")


def test_f62_an_old_keyed_table_serves_until_a_topic_is_recreated(keyed: Database) -> None:
    assert write(keyed, FIRST) == 30
    with pytest.raises(UsageError, match=f"Add it: {ADD.format('clicks')}.*Then make .* its key"):
        write(keyed, AGAIN)
    assert keyed.rows("SELECT count(*) FROM clicks") == [(30,)]


def test_f62_rows_of_a_fresh_batch_that_are_in_a_keyed_table_are_told(
    keyed: Database, caplog: pytest.LogCaptureFixture
) -> None:
    write(keyed, FIRST)
    write(keyed, FIRST._replace(start=28, end=33))
    assert told(caplog) == ["rows_passed_over"]
    assert "2 of 5 rows for clicks" in caplog.text


def test_f62_a_driver_that_does_not_count_is_no_reason_to_warn(
    keyed: Database, caplog: pytest.LogCaptureFixture
) -> None:
    class Cursor(sqlite3.Cursor):
        rowcount = -1

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any, **__: Any) -> Any:
            return super().cursor(Cursor)

    for _ in range(2):
        write_sql(
            Frame(FIRST),  # type: ignore[arg-type]
            batch(FIRST),
            lambda: sqlite3.connect(keyed.path, factory=Connection),
            "clicks",
        )
    assert told(caplog) == []


# ---- files


def test_f62_the_file_of_a_recreated_topic_does_not_replace_an_earlier_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for each in (FIRST, FIRST._replace(incarnation=2)):
        draft(tmp_path / "drafts", "part-0.parquet", ("t", 0, 5))
        name_files(footers_of(tmp_path / "drafts"), [each], tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["t-0-0-30.2.parquet", "t-0-0-30.parquet"]
    assert told(caplog) == []


@pytest.mark.parametrize(("replayed", "events"), [(True, []), (False, ["files_replaced"])])
def test_f62_a_file_that_a_fresh_batch_replaces_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, replayed: bool, events: list[str]
) -> None:
    (tmp_path / "t-0-0-30.parquet").touch()
    draft(tmp_path / "drafts", "part-0.parquet", ("t", 0, 5))
    name_files(footers_of(tmp_path / "drafts"), [FIRST], tmp_path, replayed=replayed)
    assert told(caplog) == events


# ---- how the batch gets the number


def test_f62_a_batch_names_the_incarnation_that_its_partitions_were_started_for(world: World) -> None:
    world.incarnation = 2
    job = Job(world)
    running = InThread(lambda: world.consumer().run(job, max_batches=1))
    seen = job.await_begun(1)
    job.let_go()
    running.result()
    assert [(str(each), each.incarnation) for each in seen.ranges] == [("t-0-0-10", 2), ("t-1-100-130", 2)]
    assert seen.id == batch_id(seen.ranges)


def test_f62_batches_of_two_incarnations_have_two_ids_and_the_first_id_is_the_old_one() -> None:
    assert batch_id([FIRST]) == batch_id([FIRST._replace(incarnation=0)])
    assert batch_id([FIRST]) != batch_id([FIRST._replace(incarnation=2)])


@pytest.mark.parametrize("end", ["lost", "stop"])
def test_f62_the_number_of_a_start_is_known_within_on_start_and_nothing_of_it_behind_its_end(end: str) -> None:
    heard = []
    callbacks = ApplicationCallbacks(
        lambda starting: heard.append([callbacks.incarnation(each) for each in starting]),
        lambda partitions: {},
        lambda partitions: None,
        None,
        None,
    )
    functions = callbacks.functions()
    functions["start"](Starting({P0: 5}, 1, {P0: 3}))
    assert (heard, callbacks.incarnation(P0), callbacks.first_of([P0])) == ([[3]], 3, {P0: 1})
    functions[end]((P0,))
    assert callbacks.incarnation(P0) == 0
    assert (callbacks._started, callbacks._read, callbacks._incarnations) == ({}, {}, {})


# ---- a streaming query


def test_f62_a_checkpoint_has_the_incarnation_and_an_old_one_is_read() -> None:
    held = Batch(id="", seq=0, generation=7, ranges=(AGAIN,))
    offset = offset_of("5f", "etl", held, {})
    assert ranges_in(offset) == (AGAIN,)
    old = {"version": 1, "run": "5f", "ranges": {"t": {"0": {"lo": 0, "hi": 10, "end": 10}}}}
    assert ranges_in(old) == (AGAIN._replace(incarnation=0),)


@pytest.mark.parametrize(("started_for", "position"), [(1, 30), (0, 30), (2, 0)])
def test_f62_a_query_does_not_pass_over_another_incarnations_offsets(started_for: int, position: int) -> None:
    known = StreamPositions()
    known.recover([FIRST])
    assert known.started(Starting({P0: 0}, 1, {P0: started_for})) == {P0: position}
