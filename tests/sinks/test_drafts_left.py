"""Drafts of files by range whose range never comes again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.frames import Frame, batch
from tests.sinks.test_files_in_stores import FILES, C, D, Dies, Place, die
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


def test_f252_a_folder_of_drafts_goes_when_one_of_its_partitions_has_an_heir(tmp_path: Path) -> None:
    """Its batch never comes again whole. An heir of another partition, and a member of that generation, leave it."""
    folder, aside = tmp_path / "clicks", tmp_path / "aside"
    aside.mkdir()

    def killed() -> None:
        for each in folder.glob(".*"):
            each.rename(aside / each.name)
        raise Dies

    write: Any = write_parquet_ranges
    with pytest.raises(Dies):
        write(Frame.of(C, D, on_write=killed), batch(C, D), folder)
    left = [each.rename(folder / each.name) for each in aside.iterdir()]
    assert len(left) == 2
    other = OffsetRange("clicks", 2, 0, 3)
    write(Frame.of(other), replace(batch(other), generation=2), folder)
    write(Frame.of(D), batch(D), folder)
    assert all(each.exists() for each in left)
    write(Frame.of(C), replace(batch(C, replayed=True), generation=2), folder)
    assert sorted(each.name for each in folder.iterdir()) == sorted([*FILES, "clicks-2-0-3.parquet"])
