"""Files of commands on a full disk, and in a pipe: the error names the file, and no part of it stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.old_world import OldWorld
from tests.cli.program import Run
from zkcoord.shell.zk.blocking import Tree

pytestmark = pytest.mark.zookeeper

LINES = "".join(f"/consumers/g/offsets/clicks/{number}:7\n" for number in range(300))
FULL = "cannot be written (File too large): make room there, or send it elsewhere\n"


@pytest.fixture
def world(chroot: str) -> Iterator[OldWorld]:
    with Tree(chroot) as tree:
        world = OldWorld(tree, chroot)
        world.group("g", {"offsets": {f"clicks/{number}": "1" for number in range(9)}})
        yield world


def on_a_full_disk(words: str, world: OldWorld, given: str = "", **environment: str) -> tuple[int, str]:
    """The exit code and the error of a command that can write 512 bytes to each file."""
    command = f'ulimit -f 1; exec "{sys.executable}" -B -m zkcoord_command {words} --zookeeper {world.address}'
    done = subprocess.run(
        ["sh", "-c", command],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )
    return done.returncode, done.stderr


def test_a_backup_names_its_file(world: OldWorld, tmp_path: Path) -> None:
    """Before, it said that standard output cannot be written."""
    assert on_a_full_disk(f"backup {tmp_path}/x", world) == (1, f"error: {tmp_path}/x {FULL}")
    assert list(tmp_path.iterdir()) == []


def test_an_import_names_the_folder_where_it_keeps_the_checked_offsets(world: OldWorld, tmp_path: Path) -> None:
    done = on_a_full_disk("offsets import -", world, LINES, TMPDIR=str(tmp_path))
    assert done == (1, f"error: {tmp_path} {FULL}")


def test_an_inventory_leaves_no_part_of_its_file(world: OldWorld, tmp_path: Path) -> None:
    """The next run would take it for a file that somebody has filled in. The error is that of other commands."""
    assert on_a_full_disk(f"inventory --write {tmp_path}/x", world) == (1, f"error: {tmp_path}/x {FULL}")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_in_a_pipe_is_refused_with_what_to_do(world: OldWorld, run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("x",), daemon=True)
    writer.start()

    result = run("restore", str(pipe), "--zookeeper", world.address)

    told = f"error: {pipe} is a pipe, and a backup is read several times: unpack it into a file, and name that\n"
    assert (result.exit_code, result.stderr) == (2, told)
    writer.join()
