"""A Delta table that was restored to an earlier version knows how far it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.spark.sinks.frames import A, B, DeltaLog, records
from tests.spark.sinks.test_delta import others, write
from zkcoord.errors import UsageError
from zkcoord.spark.sinks import delta

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


def restored(table: Path, version: int) -> None:
    DeltaTable(table).restore(version)


def test_f175_rows_that_a_restore_removed_are_written_again_and_others_are_not(table: Path) -> None:
    """Delta keeps the versions of application transactions as they are: without more, all would count as written."""
    write(table, A, B)
    kept = DeltaTable(table).version()
    write(table, A._replace(start=14, end=20))
    restored(table, kept)
    assert DeltaLog(table).rows() == records(A, B)
    assert write(table, A._replace(end=20), B) == 6
    assert write(table, A._replace(end=20), B) == 0
    assert DeltaLog(table).rows() == records(A._replace(end=20), B)


def test_f175_restores_one_behind_the_other_with_batches_and_others_between(table: Path) -> None:
    write(table, A)
    first = DeltaTable(table).version()
    write(table, B)
    others(table)
    second = DeltaTable(table).version()
    write(table, A._replace(start=14, end=20), B._replace(start=8, end=9))
    restored(table, second)
    others(table)
    assert (write(table, B), write(table, A._replace(end=18))) == (0, 4)
    third = DeltaTable(table).version()
    restored(table, first)
    assert (write(table, A), write(table, A._replace(end=16), B)) == (0, 5)
    assert [row for row in DeltaLog(table).rows() if row[0] == "clicks"] == records(A._replace(end=16), B)
    restored(table, third)
    assert write(table, A._replace(end=18), B) == 0
    assert write(table, A._replace(end=19), B) == 1
    assert [row for row in DeltaLog(table).rows() if row[0] == "clicks"] == records(A._replace(end=19), B)


def test_a_table_restored_to_before_it_had_anything_is_filled_from_the_start(table: Path) -> None:
    write(table, A)
    restored(table, 0)
    assert (write(table, A), DeltaLog(table).rows()) == (4, records(A))


def test_a_restore_to_a_time_is_followed_or_refused_with_what_to_do(table: Path) -> None:
    write(table, A)
    kept = datetime.now(UTC)  # a version has the time of its file, which is later than that in it
    write(table, A._replace(start=14, end=20))
    DeltaTable(table).restore(kept)
    assert write(table, A._replace(end=20)) == 6
    last = DeltaTable(table).version()
    restored(table, last - 1)
    log = table / "_delta_log" / f"{last + 1:020}.json"
    log.write_text(log.read_text().replace(f'"version":"{last - 1}"', '"version":null,"timestamp":"2026-01-02 03:04"'))
    with pytest.raises(UsageError, match=rf"restored to a time \(version {last + 1}\).* by its number"):
        write(table, A)


def test_f175_a_store_that_fails_while_the_restored_version_is_read_has_nothing_written_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: DeltaTable, version: int) -> None:
        raise DeltaError("503 Slow Down")

    write(table, A)
    kept = DeltaTable(table).version()
    write(table, B)
    restored(table, kept)
    with monkeypatch.context() as busy:
        busy.setattr(DeltaTable, "load_as_version", fail)
        with pytest.raises(DeltaError, match="503"):
            write(table, A, B)
    assert DeltaLog(table).rows() == records(A)
    assert (write(table, A, B), DeltaLog(table).rows()) == (3, records(A, B))


def test_a_restored_version_that_the_log_has_no_more_tells_nothing(table: Path) -> None:
    write(table, A)
    kept = DeltaTable(table).version()
    write(table, B)
    restored(table, kept)
    DeltaTable(table).create_checkpoint()
    for number in range(kept + 1):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    assert write(table, B) == 3


def test_f297_a_restore_that_has_left_the_log_leaves_the_ends_where_they_are(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta removes commits of more than 30 days; the group paused for so long, and others wrote."""
    write(table, A, B)
    kept = DeltaTable(table).version()
    write(table, A._replace(start=14, end=20))
    restored(table, kept)
    assert write(table, A._replace(end=17)) == 3
    others(table)
    DeltaTable(table).create_checkpoint()
    for number in range(DeltaTable(table).version()):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    monkeypatch.setattr(delta, "_kept", delta._Kept())  # another program
    assert (write(table, A._replace(end=20), B), write(table, A._replace(end=20), B)) == (3, 0)


def test_each_batch_looks_through_few_commits_for_restores(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    commits = delta._Place.commits
    monkeypatch.setattr(delta._Place, "commits", lambda self, at: read.append(at) or commits(self, at))  # type: ignore[func-returns-value]
    for at in range(20):
        write(table, A._replace(start=at, end=at + 1))
    assert len(read) <= 3 * 20
