"""The files that commands make: whole or not at all, never in place of another file, and nothing is left of a program
that was killed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from zkcoord.cli.files import new_file
from zkcoord.errors import UsageError

KILLED = """
import os, signal
from zkcoord.cli.files import new_file
with new_file("x") as file:
    file.write("half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["without a name", "with a hidden name"])
def draft(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A draft as most file systems have it, and as NFS has it, which refuses a file without a name."""
    opens = os.open

    def refused(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opens(path, flags, *more, **named)

    if request.param == "with a hidden name":
        monkeypatch.setattr(os, "open", refused)
    return str(request.param)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_appears_when_it_is_whole_and_only_its_owner_may_read_it(draft: str, tmp_path: Path) -> None:
    with new_file(str(tmp_path / "x")) as file:
        file.write("half of ")
        file.flush()
        assert "x" not in names(tmp_path)
        assert bool(names(tmp_path)) is (draft == "with a hidden name")
        file.write("it\n")
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_text() == "half of it\n"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


@pytest.mark.usefixtures("draft")
def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no more"), new_file(str(tmp_path / "x")) as file:
        file.write("half of it")
        raise ValueError("no more")
    assert names(tmp_path) == []


@pytest.mark.usefixtures("draft")
def test_a_file_that_somebody_has_made_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    told = f"^--write {tmp_path}/x: the file is there already; name another one$"
    with pytest.raises(UsageError, match=told), new_file(str(tmp_path / "x"), "--write ") as file:
        file.write("from us")
        (tmp_path / "x").write_text("filled in")
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_text() == "filled in"


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "y")
    with pytest.raises(UsageError, match="the file is there already"), new_file(str(tmp_path / "x")):
        pytest.fail("it was made")


def test_a_killed_program_leaves_no_draft(tmp_path: Path) -> None:
    """Before, each killed backup left a hidden file as large as what it had saved."""
    try:
        os.close(os.open(tmp_path, os.O_RDWR | os.O_TMPFILE))
    except OSError as error:
        pytest.skip(f"the file system of {tmp_path} has no files without a name: {error.strerror}")
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, timeout=120, check=False)
    assert (done.returncode, names(tmp_path)) == (-signal.SIGKILL, [])


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--write", ("inventory", "--zookeeper", "127.0.0.1:1")),
        ("--csv", ("offsets", "history", "--bootstrap-servers", "127.0.0.1:1")),
        ("--parquet", ("offsets", "verify", "g", "--zookeeper", "127.0.0.1:1", "--bootstrap-servers", "127.0.0.1:1")),
    ],
)
def test_a_file_beside_a_result_is_refused_before_anything_is_read(
    run: Run, option: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a file named `-` was made."""
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    for name, why in (
        ("-", "standard output has the result of the command; name a file"),
        ("there", "the file is there already; name another one"),
        ("no/folder", "there is no such folder; make it, or name another one"),
    ):
        done = run(*command, option, name)
        assert (done.exit_code, done.stderr) == (2, f"error: {option} {name}: {why}\n")
    assert names(tmp_path) == ["there"]
