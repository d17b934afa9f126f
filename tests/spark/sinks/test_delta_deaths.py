"""A program that appends to a Delta table dies, or does not learn what became of its commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.sinks.frames import A, B, DeltaLog, Frame, batch, lose_an_answer, records
from tests.spark.sinks.test_delta import PA, PB, others, write
from zkcoord.errors import UsageError
from zkcoord.spark.sinks import data_files, delta

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


class Dies(BaseException):
    """As the end of the process: nothing after it is run."""


def test_f164_files_of_a_program_that_died_before_its_commit_are_no_rows_and_are_vacuumed(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Dies

    def die_in_tasks() -> None:
        """One task has not ended yet: its file is still in the folder of the attempt."""
        attempt = next(table.glob(f"{data_files.DRAFTS}/*/_temporary/0")) / "_temporary/attempt_1"
        attempt.mkdir(parents=True)
        (attempt / "part-9.snappy.parquet").write_bytes(b"PAR1")
        raise Dies

    write(table, B)
    with monkeypatch.context() as dying, pytest.raises(Dies):
        dying.setattr(delta._Version, "commit", die)
        write(table, A)
    with monkeypatch.context() as dying, pytest.raises(Dies):  # in Spark's job: a dead program tidies nothing up
        dying.setattr(data_files.shutil, "rmtree", lambda *_, **__: None)
        write(table, frame=Frame.of(A, on_write=die_in_tasks), to=batch(A))
    assert DeltaLog(table).rows() == records(B)
    left = {file.name for file in table.rglob("*.parquet")} - DeltaLog(table).files.keys()
    assert (len(left), "part-9.snappy.parquet" in left) == (5, True)
    assert write(table, A) == 4
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    kept = {str(file.relative_to(table)) for file in table.rglob("*") if file.is_file()}
    assert {file for file in kept if not file.startswith("_delta_log/")} == DeltaLog(table).files.keys()
    assert DeltaLog(table).rows() == records(A, B)


def test_f320_sparks_unfinished_files_of_a_killed_program_go_after_a_week(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise Dies

    for _ in range(2):
        with monkeypatch.context() as dying, pytest.raises(Dies):
            dying.setattr(data_files.shutil, "rmtree", lambda *_, **__: None)
            write(table, frame=Frame.of(A, on_write=die), to=batch(A))
    old, other = (table / data_files.DRAFTS).iterdir()
    (old / "_temporary" / "0" / "part-0.parquet").touch()
    os.utime(old, (0, 0))
    assert write(table, A) == 4
    assert [*(table / data_files.DRAFTS).iterdir()] == [other], "its program may still write"


def test_f164_a_batch_that_failed_leaves_no_files(table: Path) -> None:
    def fail() -> None:
        raise RuntimeError("a task failed")

    write(table, B)
    before = sorted(table.rglob("*"))
    with pytest.raises(RuntimeError, match="a task failed"):
        write(table, frame=Frame.of(A, on_write=fail), to=batch(A))
    assert sorted(table.rglob("*")) == before


@pytest.mark.parametrize("seen", [0, 3], ids=["none", "one of two"])
@pytest.mark.parametrize("split", [[], ["topic"]], ids=["", "partitioned"])
def test_f197_files_that_the_driver_does_not_see_are_missed(tmp_path: Path, split: list[str], seen: int) -> None:
    """Executors on other machines have another folder of that name."""

    def elsewhere() -> None:
        for drafts in tmp_path.glob(f"t/{data_files.DRAFTS}/*"):
            for file in sorted(drafts.rglob("*.parquet"))[1 if seen else 0 :]:
                file.unlink()

    write(tmp_path / "t", B, partition_by=split)
    with pytest.raises(UsageError, match=f"sees {seen} rows of 4 that .* wrote into .*/t/zkcoord-drafts: give a path"):
        write(tmp_path / "t", frame=Frame.of(A, on_write=elsewhere), to=batch(A))
    assert DeltaLog(tmp_path / "t").ends == {PB: 8}
    assert write(tmp_path / "t", A, transform=lambda rows: rows.where("n < 0")) == 0
    assert DeltaLog(tmp_path / "t").ends == {PA: 14, PB: 8}


@pytest.mark.parametrize("then", [None, others])
@pytest.mark.parametrize("happened", [True, False], ids=["it happened", "it did not"])
def test_f165_a_commit_whose_answer_is_lost_is_made_once(
    table: Path, monkeypatch: pytest.MonkeyPatch, happened: bool, then: Callable[[Path], None] | None
) -> None:
    write(table, B)
    lose_an_answer(monkeypatch, delta._Version, happened=happened, then=then and partial(then, table))
    assert write(table, A) == 4
    assert [row for row in DeltaLog(table).rows() if row[0] == "clicks"] == records(A, B)


def test_f165_a_store_that_refuses_all_commits_is_told_and_nothing_is_written(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refuse(self: Any, *arguments: Any) -> None:
        tries.append(self)
        raise OSError("503 Slow Down")

    write(table, B)
    monkeypatch.setattr(delta._Version, "commit", refuse)
    with pytest.raises(OSError, match="503"):
        write(table, A)
    assert (len(tries) > 1, DeltaLog(table).rows()) == (True, records(B))


def test_a_batch_whose_answer_came_does_not_look_for_its_own_commit(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(delta._Version, "has", lambda self, token: looked.append(token))
    write(table, A)
    assert (write(table, A, B), looked) == (3, [])


def test_a_mistake_of_the_programs_own_is_raised_at_once(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(self: Any, *arguments: Any) -> None:
        tries.append(self)
        raise TypeError("a mistake")

    tries: list[Any] = []
    monkeypatch.setattr(delta._Version, "commit", mistake)
    with pytest.raises(TypeError, match="a mistake"):
        write(table, A)
    assert len(tries) == 1
