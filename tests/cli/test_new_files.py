"""The files that commands make: whole or not at all, never in place of another file, and nothing is left of a program
that was killed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from zkcoord.cli.files import check_beside, new_file
from zkcoord.errors import UsageError

KILLED = """
import os, signal
from zkcoord.cli.files import new_file
with new_file("x") as file:
    file.write("half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def needs_drafts_without_a_name(folder: Path) -> None:
    """Skip the test, with the reason, where the file system has none: an overlay of an older Linux, for example."""
    try:
        os.close(os.open(folder, os.O_RDWR | os.O_TMPFILE))
    except OSError as error:
        pytest.skip(f"the file system of {folder} has no files without a name: {error.strerror}")


@pytest.fixture(params=["without a name", "with a hidden name", "with one name only"])
def draft(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A draft as most file systems have it; as NFS has it, which refuses a file without a name; and as another system
    than Linux has it on FAT, where a file has one name only."""
    opens = os.open

    def refused(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opens(path, flags, *more, **named)

    def no_link(*given: Any, **named: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    match request.param:
        case "without a name":
            needs_drafts_without_a_name(tmp_path)
        case "with a hidden name":
            monkeypatch.setattr(os, "open", refused)
        case _:
            monkeypatch.delattr(os, "O_TMPFILE")
            monkeypatch.setattr(os, "link", no_link)
    return str(request.param)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_appears_when_it_is_whole_and_only_its_owner_may_read_it(draft: str, tmp_path: Path) -> None:
    with new_file(str(tmp_path / "x")) as file:
        file.write("half of ")
        file.flush()
        assert "x" not in names(tmp_path)
        assert bool(names(tmp_path)) is (draft != "without a name")
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


@pytest.mark.usefixtures("draft")
@pytest.mark.parametrize("draft", ["without a name", "with a hidden name"], indirect=True)
def test_no_file_is_written_over_that_appears_at_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may tell for seconds that a name is free which another machine has taken."""
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    with pytest.raises(UsageError, match="the file is there already"), new_file(str(tmp_path / "x")):
        (tmp_path / "x").write_text("filled in")
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_text() == "filled in"


@pytest.mark.usefixtures("draft")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"{'x' * 256}", "File name too long"),
        ("there/x", "there is no such folder; make it, or name another one"),
        ("/proc/x", "No such file or directory"),
        (os.fsdecode(b"\xff/x"), "there is no such folder"),
    ],
)
def test_f353_a_file_that_can_never_be_made_is_refused_before_the_work(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    for makes in (partial(check_beside, name, "--write "), new_file(name, "--write ").__enter__):
        with pytest.raises(UsageError) as told:
            makes()
        assert str(told.value).startswith(f"--write {name}: {why}")
    assert names(tmp_path) == ["there"]


@pytest.mark.usefixtures("draft")
def test_a_check_makes_nothing(tmp_path: Path) -> None:
    check_beside(str(tmp_path / "x"), "--write ")
    assert names(tmp_path) == []


def test_a_file_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    with new_file(os.fsdecode(bytes(tmp_path) + b"/\xff")) as file:
        file.write("x")
    assert names(tmp_path) == [os.fsdecode(b"\xff")]


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "y")
    with pytest.raises(UsageError, match="the file is there already"), new_file(str(tmp_path / "x")):
        pytest.fail("it was made")


def test_a_killed_program_leaves_no_draft(tmp_path: Path) -> None:
    """Before, each killed backup left a hidden file as large as what it had saved."""
    needs_drafts_without_a_name(tmp_path)
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
