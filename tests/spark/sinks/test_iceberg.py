"""An Iceberg table in which each record is once, whoever writes it again, in which pieces, and when one dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from tests.spark.sinks.frames import TYPES, A, B, Frame, Rows, batch, lose_an_answer, once, records
from zkcoord.errors import UsageError
from zkcoord.spark import write_iceberg
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.sinks import data_files, files_in_tasks, iceberg

pytestmark = pytest.mark.spark
PA, PB = "zkcoord/etl/clicks-0", "zkcoord/etl/clicks-1"
NAME = "db.clicks"


class Warehouse:
    """A catalog in SQLite; each call of it is another program's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[SqlCatalog] = []
        catalog = self.catalog()
        catalog.create_namespace("db")
        catalog.create_table(NAME, TYPES)

    def catalog(self) -> SqlCatalog:
        where = {"uri": f"sqlite:///{self._folder}/catalog.db", "warehouse": f"file://{self._folder}/warehouse"}
        made = SqlCatalog("tests", **where)
        self._made.append(made)
        return made

    def close(self) -> None:
        for each in self._made:
            each.close()

    def load(self, name: str = NAME) -> Any:
        return self.catalog().load_table(name)

    def write(self, *ranges: OffsetRange, frame: Any = None, to: Batch | None = None, **settings: Any) -> int:
        name = settings.pop("table", NAME)
        shown = frame or Frame.of(*ranges)
        return write_iceberg(shown, to or batch(*ranges), name, catalog=self.catalog(), **settings)

    def rows(self, columns: str = 'topic, partition, "offset", n', branch: str | None = None) -> Rows:
        """The rows of the files that the table names, read by DuckDB."""
        table = self.load()
        scan = table.scan() if branch is None else table.scan().use_ref(branch)
        paths = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
        if not paths:
            return []
        with duckdb.connect() as own:
            return [*own.sql(f"SELECT {columns} FROM read_parquet({paths!r}) ORDER BY ALL").fetchall()]

    def others(self) -> None:
        """Another writer appends a row of its own."""
        self.load().append(pa.table([["other"], [0], [0], [0]], TYPES))

    def ends(self, *names: str) -> dict[str, int]:
        state = iceberg._State(self.load(), "main")
        return {name: end for name in names or (PA, PB) if (end := state.end(name)) is not None}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.__dict__["zkcoord_event"] for each in caplog.records if hasattr(each, "zkcoord_event")]


def test_f162_a_batch_rewritten_to_iceberg_in_any_pieces_is_there_once(house: Warehouse) -> None:
    assert (house.write(A, B), house.write(A, B), house.write(B), house.write(A)) == (7, 0, 0, 0)
    assert house.write(A._replace(start=12, end=20), B) == 6
    assert house.write(A._replace(start=11, end=13)) == 0
    assert (house.rows(), house.ends()) == (records(A._replace(end=20), B), {PA: 20, PB: 8})
    assert len(house.load().snapshots()) == 2
    assert house.load().scan().to_arrow().num_rows == 13


def test_f254_an_end_of_iceberg_beyond_the_batch_stays_where_it_is(house: Warehouse) -> None:
    longer = A._replace(end=20)
    assert (house.write(longer), house.write(A, B), house.write(longer)) == (10, 3, 0)
    assert (house.rows(), house.ends()) == (records(longer, B), {PA: 20, PB: 8})


def test_a_batch_of_which_nothing_is_to_be_written_moves_the_ends_of_iceberg(house: Warehouse) -> None:
    assert house.write(B, transform=lambda rows: rows.where("n < 0")) == 0
    assert (house.rows(), house.ends()) == ([], {PB: 8})


def test_a_topic_that_was_created_again_is_written_to_iceberg_from_its_beginning(house: Warehouse) -> None:
    first, again = A._replace(incarnation=1), A._replace(start=0, end=5, incarnation=2)
    assert [house.write(each) for each in (first, again, again)] == [4, 5, 0]
    assert house.write(first._replace(end=16)) == 2  # read late: still a record that the table had not
    assert (house.rows(), house.ends(PA, f"{PA}.2")) == (records(again, A._replace(end=16)), {PA: 16, f"{PA}.2": 5})


@pytest.mark.parametrize("known", [True, False], ids=["a table with ends", "a new table"])
def test_f163_of_two_that_write_to_iceberg_at_once_one_writes(house: Warehouse, known: bool) -> None:
    """pyiceberg itself would put the second snapshot on top of the first."""
    if known:
        house.write(OffsetRange("clicks", 0, 0, 10))
    frame = Frame.of(A, B, on_write=once(lambda: house.write(B, A)))
    assert house.write(frame=frame, to=batch(A, B)) == 0
    assert house.rows() == records(A._replace(start=0) if known else A, B)


def test_f163_a_partly_overtaken_iceberg_writer_writes_the_rest(house: Warehouse) -> None:
    frame = Frame.of(A, B, on_write=once(lambda: house.write(B, A._replace(end=12))))
    assert house.write(frame=frame, to=batch(A, B)) == 2
    assert (house.rows(), house.ends()) == (records(A, B), {PA: 14, PB: 8})


def test_others_append_to_iceberg_meanwhile(house: Warehouse) -> None:
    house.write(B)
    house.others()
    assert house.write(frame=Frame.of(A, on_write=once(house.others)), to=batch(A)) == 4
    assert house.rows() == [*records(A, B), *[("other", 0, 0, 0)] * 2]
    assert house.write(A, B) == 0


class Dies(BaseException):
    """As the end of the process: nothing after it is run."""


def killed(write: Callable[..., object]) -> None:
    """Call `write` with rows for a program that is killed before its commit, and for one that is killed in Spark's
    job."""

    def die(*_: object) -> None:
        raise Dies

    with pytest.MonkeyPatch.context() as dying, pytest.raises(Dies):
        dying.setattr(iceberg._State, "commit", die)
        write(None)
    with pytest.MonkeyPatch.context() as dying, pytest.raises(Dies):
        dying.setattr(data_files.shutil, "rmtree", lambda *_, **__: None)  # a dead program tidies nothing up
        write(die)


def unnamed(table: Any) -> list[Path]:
    """The data files of a table that its newest snapshot does not name."""
    data = Path(table.location().removeprefix("file://")) / "data"
    named = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
    return [each for each in sorted(data.rglob("*.parquet")) if str(each) not in named]


def test_f164_iceberg_files_of_a_program_that_died_before_its_commit_are_no_rows(house: Warehouse) -> None:
    house.write(B)
    killed(lambda die: house.write(frame=Frame.of(A, on_write=die), to=batch(A)))
    assert (house.rows(), len(unnamed(house.load()))) == (records(B), 4)
    assert (house.write(A), house.rows(), len(unnamed(house.load()))) == (4, records(A, B), 4)


@pytest.mark.parametrize("others", [False, True], ids=["", "others write meanwhile"])
@pytest.mark.parametrize("happened", [True, False], ids=["it happened", "it did not"])
def test_f165_an_iceberg_commit_whose_answer_is_lost_is_made_once(
    house: Warehouse, monkeypatch: pytest.MonkeyPatch, happened: bool, others: bool
) -> None:
    house.write(B)
    lose_an_answer(monkeypatch, iceberg._State, happened=happened, then=house.others if others else None)
    assert house.write(A) == 4
    assert [row for row in house.rows() if row[0] == "clicks"] == records(A, B)


def test_a_rollback_takes_the_ends_back_with_the_rows(house: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    house.write(A, B)
    before = house.load().current_snapshot().snapshot_id
    house.write(A._replace(start=14, end=30))
    house.load().manage_snapshots().rollback_to_snapshot(before).commit()
    assert (house.rows(), house.ends()) == (records(A, B), {PA: 14, PB: 8})
    house.write(A._replace(start=30, end=33))
    assert told(caplog) == ["rows_missing"]
    assert "offsets of clicks-0 from 14 to 30" in caplog.text


def test_a_table_that_is_rolled_back_to_before_all_ends_has_none(house: Warehouse) -> None:
    house.others()
    before = house.load().current_snapshot().snapshot_id
    house.write(A)
    house.load().manage_snapshots().rollback_to_snapshot(before).commit()
    assert (house.ends(), house.write(A)) == ({}, 4)


def test_a_branch_has_the_ends_of_where_it_began_and_its_own_since(house: Warehouse) -> None:
    house.write(A)
    table = house.load()
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    assert (house.write(A, B, branch="audit"), house.write(A, B, branch="audit")) == (3, 0)
    assert (house.rows(), house.rows(branch="audit")) == (records(A), records(A, B))
    assert house.write(A, B) == 3
    with pytest.raises(UsageError, match="has no branch 'none'; create it first"):
        house.write(A, branch="none")


def test_ends_whose_snapshots_have_expired_are_missed(house: Warehouse) -> None:
    house.write(A)
    first = house.load().current_snapshot().snapshot_id
    house.others()
    house.load().maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(UsageError, match=r"snapshots of db\.clicks that tell how far it is have expired"):
        house.write(A)


def test_f339_snapshots_that_expired_do_not_fail_a_batch_whose_commit_met_another(house: Warehouse) -> None:
    """It looks for its own commit among the snapshots, and does not find all of the last ones."""
    for end in (14, 15):
        house.write(A._replace(end=end))
    first = house.load().snapshots()[0].snapshot_id
    house.load().maintenance.expire_snapshots().by_id(first).commit()
    assert house.write(frame=Frame.of(B, on_write=once(house.others)), to=batch(B)) == 3
    assert [row for row in house.rows() if row[0] == "clicks"] == records(A._replace(end=15), B)


def refused(house: Warehouse, frame: Any, match: str, **settings: Any) -> None:
    with pytest.raises(UsageError, match=match):
        house.write(frame=frame, to=batch(A), **settings)
    assert house.rows() == records(B)


def test_rows_that_do_not_fit_an_iceberg_table_are_refused(house: Warehouse) -> None:
    house.write(B)
    rows = Frame.of(A).rows
    refused(house, Frame(rows.append_column("more", rows["n"])), r"db\.clicks has no column 'more'")
    refused(house, Frame(rows.set_column(3, "n", rows["n"].cast(pa.int32()))), "'n' is .integer.*.long.: cast it")
    refused(house, Frame(rows), "the catalog has no table 'db.none'", table="db.none")
    schema = house.load().schema()
    spec = PartitionSpec(PartitionField(schema.find_field("n").field_id, 1000, BucketTransform(4), "b"))
    house.catalog().create_table("db.buckets", schema, partition_spec=spec)
    with pytest.raises(UsageError, match="catalog is None; give a catalog of pyiceberg, or the name of one"):
        write_iceberg(Frame(rows), batch(A), NAME, catalog=None)  # type: ignore[arg-type]
    refused(house, Frame(rows), r"partitioned by bucket\[4\]\(n\)", table="db.buckets")


def test_a_partitioned_iceberg_table_has_a_file_for_each_value(house: Warehouse) -> None:
    schema = house.load().schema()
    number = schema.find_field("partition").field_id
    spec = PartitionSpec(PartitionField(number, 1000, IdentityTransform(), "partition"))
    house.catalog().create_table("db.parts", schema, partition_spec=spec)
    assert house.write(frame=Frame.of(A, B, tasks=9), to=batch(A, B), table="db.parts") == 7
    table = house.load("db.parts")
    assert sorted(task.file.partition[0] for task in table.scan().plan_files()) == [0, 1]
    assert table.scan("partition = 1").to_arrow().num_rows == 3


def test_workers_reach_a_store_as_pyiceberg_does(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    made = files_in_tasks.filesystem_of(f"file://{tmp_path}/data", "pyiceberg", {})
    with made.open_output_stream("a") as file:
        file.write(b"x")
    assert (tmp_path / "data" / "a").read_bytes() == b"x"


def test_a_mistake_of_the_programs_own_is_raised_at_once_for_iceberg(
    house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Any] = []

    def mistake(self: Any, *arguments: Any) -> None:
        tries.append(self)
        raise TypeError("a mistake")

    monkeypatch.setattr(iceberg._State, "commit", mistake)
    with pytest.raises(TypeError, match="a mistake"):
        house.write(A)
    assert len(tries) == 1
