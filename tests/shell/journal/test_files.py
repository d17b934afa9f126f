"""Journal files: a full file is turned, the oldest is removed, and a folder has only one writer. A full disk ends only
the journal."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from zkcoord.errors import UsageError
from zkcoord.shell.journal.files import JournalFiles


def written(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """File name -> its lines, without the wall clock's time."""
    return {
        file.name: [
            {key: value for key, value in json.loads(line).items() if key != "time_ms"}
            for line in file.read_text(encoding="utf-8").splitlines()
        ]
        for file in sorted(folder.glob("*.jsonl"))
    }


def fill(files: JournalFiles, steps: range) -> None:
    """Write these steps. A full page is turned first."""
    for step in steps:
        if files.turn:
            files.checkpoint({"checkpoint": "c", "step": step - 1})
        files.write({"step": step})


def test_a_full_file_is_turned_and_the_oldest_goes(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "j", "1.2", pytest.fail, file_bytes_max=1, files_max=2)
    fill(files, range(1, 5))
    files.close()
    first = {"journal": 1, "version": "1.2", "checkpoint": "c"}
    assert written(tmp_path / "j") == {
        "000003.jsonl": [{**first, "step": 2}, {"step": 3}],
        "000004.jsonl": [{**first, "step": 3}, {"step": 4}],
    }


def test_the_next_process_begins_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        files = JournalFiles(tmp_path, "1.2", pytest.fail)
        fill(files, range(1, 3))
        files.close()
    assert [len(lines) for lines in written(tmp_path).values()] == [3, 3]


def test_two_coordinators_cannot_share_a_folder(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path, "1.2", pytest.fail)
    with pytest.raises(UsageError, match=r"another coordinator keeps its journal in .*: choose another folder"):
        JournalFiles(tmp_path, "1.2", pytest.fail)
    files.close()
    JournalFiles(tmp_path, "1.2", pytest.fail).close()


def test_a_folder_that_cannot_be_made_is_the_callers_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot keep a journal in .*: Not a directory: choose another folder"):
        JournalFiles(tmp_path / "file" / "j", "1.2", pytest.fail)


def test_a_folder_that_vanishes_ends_the_journal_with_one_line(tmp_path: Path) -> None:
    problems: list[str] = []
    files = JournalFiles(tmp_path / "j", "1.2", problems.append, file_bytes_max=1)
    fill(files, range(1, 2))
    for file in (tmp_path / "j").iterdir():
        file.unlink()
    (tmp_path / "j").rmdir()
    fill(files, range(2, 9))
    files.close()
    assert [problem.partition(": ")[2] for problem in problems] == [
        "No such file or directory: make room and start anew"
    ]


def test_a_full_disk_ends_the_journal_with_one_line_and_nothing_else(tmp_path: Path) -> None:
    """Before, the coordinator could not end cleanly: closing the file tried to write the lost line once more."""
    problems: list[str] = []
    files = JournalFiles(tmp_path, "1.2", problems.append)
    fill(files, range(1, 2))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        fill(files, range(2, 9))
        files.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [problem.partition(": ")[2] for problem in problems] == ["File too large: make room and start anew"]
    JournalFiles(tmp_path, "1.2", pytest.fail).close()
