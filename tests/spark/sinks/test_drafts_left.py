"""Drafts of files by range whose range never comes again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.sinks.frames import Frame, batch
from tests.spark.sinks.test_files_in_stores import FILES, C, D, Dies, Place, die
from zkcoord.spark import write_parquet_ranges
from zkcoord.spark.ranges import OffsetRange

pytestmark = pytest.mark.spark


def test_f252_drafts_of_attempts_that_did_not_count_and_of_ranges_cut_anew_go_with_the_next(
    tmp_path: Path,
) -> None:
    """Attempt after attempt would else leave a file. Those of other partitions stay, and what is nobody's draft."""
    place, attempts = Place(tmp_path, None), []

    class Twice(Frame):
        def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802
            attempts.append([*function(iter(Frame.of(C).rows.to_batches()))])
            return super().mapInArrow(function, schema)

    place.write(frame=Twice(Frame.of(C, D).rows), to=batch(C, D))
    (failed,) = place.files()[:1]
    assert (len(attempts), failed.startswith(f".zkcoord/{FILES[0]}.1-"), place.files()[1:]) == (1, True, FILES)
    kept = [".zkcoord/a.parquet.x-1", ".zkcoord/clicks-0-1-2.parquet.x-1", ".zkcoord/note.1-1"]
    for each in kept:
        (tmp_path / each).touch()
    place.write(D._replace(start=8, end=11))
    assert failed in place.files(), "it is of another partition"
    place.write(C._replace(start=13, end=16))
    assert [each for each in place.files() if each.startswith(".")] == kept
    with pytest.raises(Dies):
        place.write(frame=Frame.of(D, on_write=die), to=batch(D))
    cut_anew = D._replace(start=6, end=9)
    place.write(cut_anew, to=replace(batch(cut_anew), generation=2))
    assert [each for each in place.files() if each.startswith(".")] == kept


def killed(folder: Path) -> list[Path]:
    """A program with two ranges is killed when its tasks have written; return what it leaves beside the files."""
    aside = folder.with_name("aside")
    aside.mkdir()

    def strike() -> None:
        for each in folder.glob(".*"):
            each.rename(aside / each.name)
        raise Dies

    with pytest.raises(Dies):
        write(folder, C, D, on_write=strike)
    left = [each.rename(folder / each.name) for each in aside.iterdir()]
    assert len(left) == 2
    return left


def write(folder: Path, *ranges: OffsetRange, generation: int = 1, of: str = "b", **settings: Any) -> None:
    to = replace(batch(*ranges, replayed=generation > 1), generation=generation, id=of)
    write_parquet_ranges(Frame.of(*ranges, **settings), to, folder)  # type: ignore[arg-type]


def test_f252_a_folder_of_drafts_goes_when_the_batch_comes_again(tmp_path: Path) -> None:
    left = killed(tmp_path / "clicks")
    write(tmp_path / "clicks", C, D)
    assert all(each.exists() for each in left), "who has it in the same generation may be somebody else"
    write(tmp_path / "clicks", C, D, generation=2)
    assert sorted(each.name for each in (tmp_path / "clicks").iterdir()) == FILES


def test_f252_a_folder_of_drafts_goes_after_a_day_when_heirs_share_its_batch(tmp_path: Path) -> None:
    """Until then its program may still write: a query that was too slow goes on with its next batch. Others of no such
    partition, or of its generation, leave it."""
    folder, other = tmp_path / "clicks", OffsetRange("clicks", 2, 0, 3)
    left = killed(folder)
    write(folder, C, generation=2, of="heir")
    for each in left:
        assert each.exists()
        os.utime(each, (0, 0))
    write(folder, other, generation=2, of="others")
    write(folder, D, of="heir")
    assert all(each.exists() for each in left)
    write(folder, D, generation=2, of="heir")
    assert sorted(each.name for each in folder.iterdir()) == [*FILES, "clicks-2-0-3.parquet"]
