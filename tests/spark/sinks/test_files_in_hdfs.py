"""Files by range on a real HDFS: by programs of their own, of which one is killed, and one sleeps."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.spark.sinks.frames import records
from tests.spark.sinks.hdfs_server import Hdfs, hdfs_server, program
from tests.spark.sinks.on_hdfs import WRITTEN
from zkcoord.spark.ranges import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.hdfs, pytest.mark.long]
DEADLINE_S = 300
C, D = OffsetRange("clicks", 0, 10, 13), OffsetRange("clicks", 1, 5, 8)  # each a task of three rows
FILES = ["clicks-0-10-13.parquet", "clicks-1-5-8.parquet"]


@pytest.fixture(scope="module")
def hdfs() -> Iterator[Hdfs]:
    with hdfs_server() as server:
        yield server


def spelled(ranges: Sequence[OffsetRange]) -> str:
    return json.dumps([each[:4] for each in ranges])


class Place:
    """A folder of a test's own, and the programs that write there."""

    def __init__(self, hdfs: Hdfs, tmp_path: Path, stack: ExitStack) -> None:
        self._hdfs, self._copies, self._stack = hdfs, tmp_path, stack
        self._folder = f"lake/{tmp_path.name}"
        self.uri = f"{hdfs.uri}/{self._folder}"
        self._errors = tmp_path / "errors"

    def begin(self, *ranges: OffsetRange, generation: int) -> subprocess.Popen[str]:
        """A program whose tasks have written, and which waits."""
        begun = self._program("write", self.uri, str(generation), spelled(ranges))
        assert begun.stdout is not None
        assert begun.stdout.readline().strip() == WRITTEN, self._errors.read_text()[-3000:]
        return begun

    def _program(self, *arguments: str) -> subprocess.Popen[str]:
        return self._stack.enter_context(program(*arguments, errors=self._errors))

    def end(self, begun: subprocess.Popen[str]) -> Any:
        """Let it go on; return the files that it has written."""
        out, _ = begun.communicate("\n", timeout=DEADLINE_S)
        assert begun.returncode == 0, self._errors.read_text()[-3000:]
        return json.loads(out)

    def write(self, *ranges: OffsetRange, generation: int) -> Any:
        return self.end(self.begin(*ranges, generation=generation))

    def write_by_spark(self, *ranges: OffsetRange) -> Any:
        return self.end(self._program("spark", self.uri, spelled(ranges)))

    def files(self) -> list[str]:
        return self._hdfs.files(self._folder)

    def rows(self) -> list[tuple[Any, ...]]:
        """What another engine reads."""
        found = self._hdfs.download(self._folder, self._copies / "read")
        columns = 'topic, partition, "offset", n'
        return duckdb.sql(f"SELECT {columns} FROM read_parquet('{found}/*.parquet') ORDER BY 1, 2, 3").fetchall()


@pytest.fixture
def place(hdfs: Hdfs, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(hdfs, tmp_path, stack)


def test_f172_ranges_that_come_again_replace_their_own_files_on_hdfs(place: Place) -> None:
    assert place.write(C, D, generation=1) == [[name, 3] for name in FILES]
    assert (place.files(), place.rows()) == (FILES, records(C, D))
    assert place.write(D, generation=2) == [[FILES[1], 3]]
    assert (place.files(), place.rows()) == (FILES, records(C, D))


def test_f173_drafts_of_a_killed_writer_are_no_files_of_hdfs_and_go_with_their_range(place: Place) -> None:
    """It is killed with all its drafts, and its two ranges come to two heirs."""
    killed = place.begin(C, D, generation=1)
    killed.kill()
    killed.wait(DEADLINE_S)
    left = place.files()
    assert (len(left), {each.split("/")[0] for each in left}) == (2, {".zkcoord"})
    place.write(D, generation=2)
    assert [each for each in place.files() if "/" not in each] == FILES[1:]
    assert len(place.files()) == 2
    place.write(C, generation=3)
    assert (place.files(), place.rows()) == (FILES, records(C, D))


def test_f173_a_writer_that_wakes_behind_its_heir_spoils_no_file_of_hdfs(place: Place) -> None:
    slept = place.begin(C, D, generation=1)
    place.write(C, generation=2)
    out, _ = slept.communicate("\n", timeout=DEADLINE_S)
    assert (out, slept.returncode != 0) == ("", True), "its draft is gone: the batch fails, and is not committed"
    place.write(D, generation=3)
    assert (place.files(), place.rows()) == (FILES, records(C, D))


def test_f251_sparks_driver_replaces_a_file_of_hdfs_at_once(place: Place, hdfs: Hdfs) -> None:
    """The old file goes with the rename that replaces it: nobody asks the NameNode to delete it before."""
    before = hdfs.deletions()
    found, rows = place.write_by_spark(C, D)
    assert (found, [tuple(each) for each in rows]) == ([[name, 3] for name in FILES], records(C, D))
    assert (place.files(), place.rows()) == (FILES, records(C, D))
    assert hdfs.deletions() == before


def test_f317_a_program_that_wakes_behind_its_heir_takes_no_file_of_hdfs_away(place: Place) -> None:
    """Through Spark Connect. It dies between Arrow's two steps of a rename over a file."""
    heir = place.begin(C, D, generation=2)
    slept = place.begin(C, D, generation=1)
    place.end(heir)
    assert place.end(slept) == [[name, 3] for name in FILES]
    assert place.write(C, D, generation=1) == [[name, 3] for name in FILES], "it slept before it wrote"
    assert (place.files(), place.rows()) == (FILES, records(C, D))
