"""A program keeps what it knows of a Delta table from one batch to the next, and sees what has happened to it since.
Each program here knows what it has read itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, TableFeatures, write_deltalake
from deltalake.exceptions import DeltaError

from tests.spark.sinks import test_delta
from tests.spark.sinks.frames import TYPES, A, B, DeltaLog, Frame, batch, once, records
from tests.spark.sinks.test_delta import others
from zkcoord.errors import UsageError
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks import delta

pytestmark = pytest.mark.spark
PA = "zkcoord/etl/clicks-0"
Write = Callable[..., int]
MORE = A._replace(start=14, end=20)
ALL = A._replace(end=20)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Write]:
    """Start one: what writes batches."""

    def start() -> Write:
        kept = delta._Kept()

        def write(*given: Any, **settings: Any) -> int:
            with monkeypatch.context() as running:
                running.setattr(delta, "_kept", kept)
                return test_delta.write(*given, **settings)

        return write

    return start


class Counted:
    """Counts how often a table is read from its beginning, and a partition's end is looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.looked_up = 0, 0
        counted = self

        class Table(DeltaTable):
            def __init__(self, *given: Any, **settings: Any) -> None:
                counted.opened += 1
                super().__init__(*given, **settings)

            def transaction_version(self, app_id: str) -> int | None:
                counted.looked_up += 1
                return super().transaction_version(app_id)

        monkeypatch.setattr(deltalake, "DeltaTable", Table)


def test_a_table_is_read_from_its_beginning_once_also_beside_others(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_delta.write(table, A._replace(start=0, end=1), B._replace(start=0, end=1))
    found = Counted(monkeypatch)
    for at in range(1, 8):
        assert test_delta.write(table, A._replace(start=at, end=at + 1), B._replace(start=at, end=at + 1)) == 2
        others(table)
    assert (found.opened, found.looked_up) == (0, 0)
    assert DeltaLog(table).ends == {PA: 8, test_delta.PB: 8}


def test_a_table_of_which_much_was_written_meanwhile_is_read_anew(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_delta.write(table, A)
    for _ in range(delta.FOLLOWED_MAX + 1):
        others(table)
    found = Counted(monkeypatch)
    assert (test_delta.write(table, MORE), found.opened) == (6, 1)
    assert [row for row in DeltaLog(table).rows() if row[0] == "clicks"] == records(ALL)


def test_a_program_keeps_the_latest_of_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [tmp_path / str(number) for number in range(delta.KEPT_MAX + 1)]
    for each in tables:
        test_delta.write(each, A)
    found = Counted(monkeypatch)
    for each in reversed(tables):
        test_delta.write(each, MORE)
    assert found.opened == 1, "the first one's"


def test_f296_a_waking_program_leaves_out_rows_that_an_heir_wrote(table: Path, program: Callable[[], Write]) -> None:
    first, heir = program(), program()
    assert (first(table, A._replace(end=12)), heir(table, A, B), heir(table, MORE)) == (2, 5, 6)
    assert (first(table, A, B), first(table, ALL), heir(table, ALL)) == (0, 0, 0)
    assert first(table, A._replace(end=22)) == 2
    assert (heir(table, A._replace(end=22)), DeltaLog(table).rows()) == (0, records(A._replace(end=22), B))


def test_f296_an_heir_that_writes_before_the_commit_of_another_goes_first(
    table: Path, program: Callable[[], Write]
) -> None:
    first, heir = program(), program()
    first(table, A)
    frame = Frame.of(MORE, B, on_write=once(lambda: heir(table, MORE)))
    assert first(table, frame=frame, to=batch(MORE, B)) == 3
    assert DeltaLog(table).rows() == records(ALL, B)


def test_f296_an_heir_that_writes_while_the_table_is_followed_goes_first(
    table: Path, program: Callable[[], Write], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, heir = program(), program()
    first(table, A)
    update, overtake = DeltaTable.update_incremental, once(lambda: heir(table, MORE))

    def late(self: DeltaTable) -> None:
        overtake()
        update(self)

    monkeypatch.setattr(DeltaTable, "update_incremental", late)
    writes: list[str] = []
    frame = Frame.of(ALL, B, on_write=lambda: writes.append("files"))
    assert (first(table, frame=frame, to=batch(ALL, B)), writes) == (3, ["files"])
    assert DeltaLog(table).rows() == records(ALL, B)


def test_f296_a_commit_that_says_nothing_of_itself_may_be_of_any_table(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_delta.write(table, A)
    others(table)
    log = table / "_delta_log" / f"{2:020}.json"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "commitInfo" not in line))
    found = Counted(monkeypatch)
    for at in range(14, 16):
        assert test_delta.write(table, A._replace(start=at, end=at + 1)) == 1
    assert found.opened == 1, "behind it is a commit of ours"


def gone(table: Path) -> None:
    shutil.rmtree(table)


def made_again(table: Path) -> None:
    gone(table)
    DeltaTable.create(table, Schema.from_arrow(TYPES))


def made_again_and_as_long(table: Path) -> None:
    made_again(table)
    for _ in range(3):
        write_deltalake(table, pa.table([["other"], [0], [0], [0]], TYPES), mode="append")


@pytest.mark.parametrize("change", [gone, made_again, made_again_and_as_long])
def test_f296_a_table_that_was_made_again_is_filled_from_the_start(
    table: Path, change: Callable[[Path], None], program: Callable[[], Write]
) -> None:
    first, heir = program(), program()
    first(table, A)
    change(table)
    assert (first(table, A), heir(table, A), first(table, A)) == (4, 0, 0)
    assert [row for row in DeltaLog(table).rows() if row[0] == "clicks"] == records(A)


def test_f296_a_table_whose_copy_was_put_back_has_what_the_copy_has_and_what_came_since(
    table: Path, tmp_path: Path, program: Callable[[], Write]
) -> None:
    """An heir has written as many commits since as the first program knew."""
    first, heir = program(), program()
    first(table, A)
    shutil.copytree(table, tmp_path / "copy")
    first(table, MORE)
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "copy", table)
    heir(table, B)
    assert (first(table, ALL, B), heir(table, ALL, B)) == (6, 0)
    assert DeltaLog(table).rows() == records(ALL, B)


@pytest.mark.parametrize("made", [made_again, made_again_and_as_long])
def test_f298_a_table_that_is_made_again_behind_a_batchs_files_gets_the_batch_whole(
    table: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], None]
) -> None:
    """The files went with the old table. To Delta the commit is one like any other, if the new one has as many."""
    test_delta.write(table, A)
    commit, change = delta._Version.commit, once(lambda: made(table))

    def late(self: delta._Version, *given: Any) -> None:
        change()
        commit(self, *given)

    monkeypatch.setattr(delta._Version, "commit", late)
    assert (test_delta.write(table, MORE, B), test_delta.write(table, MORE, B)) == (9, 0)
    assert [row for row in DeltaLog(table).rows() if row[0] == "clicks"] == records(MORE, B)


@pytest.mark.parametrize("by_heir", [False, True])
def test_f296_a_restore_is_seen_by_one_that_knew_the_table(
    table: Path, by_heir: bool, program: Callable[[], Write]
) -> None:
    first, heir = program(), program()
    first(table, A)
    kept = DeltaTable(table).version()
    first(table, MORE)
    DeltaTable(table).restore(kept)
    if by_heir:
        assert heir(table, MORE._replace(end=17)) == 3
    assert first(table, ALL) == (3 if by_heir else 6)
    assert (heir(table, ALL), first(table, ALL), DeltaLog(table).rows()) == (0, 0, records(ALL))


def columns_are_added(table: Path) -> None:
    write_deltalake(table, pa.table({"more": ["x"]}), mode="append", schema_mode="merge")


def demands_more(table: Path) -> None:
    DeltaTable(table).alter.add_feature(TableFeatures.RowTracking, allow_protocol_versions_increase=True)


def test_f296_the_tables_newest_state_decides_the_write(table: Path, program: Callable[[], Write]) -> None:
    write = program()
    write(table, A)
    columns_are_added(table)
    more = Frame(Frame.of(MORE).rows.append_column("more", pa.array(["y"] * 6)))
    assert write(table, frame=more, to=batch(MORE)) == 6
    demands_more(table)
    with pytest.raises(UsageError, match="the feature rowTracking"):
        write(table, B)


def test_f296_a_log_that_was_cleaned_up_and_a_store_that_fails_are_read_anew(
    table: Path, program: Callable[[], Write], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, heir = program(), program()
    first(table, A)
    heir(table, MORE)
    DeltaTable(table).create_checkpoint()
    for each in range(DeltaTable(table).version()):
        (table / "_delta_log" / f"{each:020}.json").unlink()
    assert first(table, ALL, B) == 3

    def fail(self: DeltaTable) -> None:
        raise DeltaError("503 Slow Down")

    heir(table, B._replace(start=8, end=9))
    monkeypatch.setattr(DeltaTable, "update_incremental", fail)
    assert first(table, ALL, B._replace(end=10)) == 1
    found = DeltaTable(table).to_pyarrow_table().select(TYPES.names).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == records(ALL, B._replace(end=10))


def test_f296_another_user_of_the_store_knows_nothing(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other options the same URI may be another place."""
    test_delta.write(table, A)
    found = Counted(monkeypatch)
    test_delta.write(table, OffsetRange("clicks", 0, 14, 15), storage_options={"timeout": "20s"})
    assert found.opened == 1


def test_f296_a_call_that_names_other_partition_columns_is_refused_though_the_table_is_known(table: Path) -> None:
    test_delta.write(table, A)
    with pytest.raises(UsageError, match=r"partition_by is \['topic'\], and the table .* is partitioned by \[\]"):
        test_delta.write(table, MORE, partition_by=["topic"])
