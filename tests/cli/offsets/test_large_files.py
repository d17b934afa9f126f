"""Large imports and exports on a real ZooKeeper: memory does not grow with the tree, and they tell how far they are."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.migrate import upgrade
from zkcoord.offsets.reading import GROUPS_LISTED
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.bulk import NODES_AT_ONCE

pytestmark = pytest.mark.zookeeper

TIMES = 4
GROWTH_BYTES_PER_OFFSET_MAX = 16
"""How much more memory each further offset may take: what keeps something of each takes at least 60."""

PATIENCE_SECONDS = 3_600.0  # only what fails takes so long

MEASURED = """
import sys, tracemalloc
from zkcoord.cli import files as progress
from zkcoord.cli.main import cli
from zkcoord.cli.offsets import files
from zkcoord.offsets import export
from zkcoord.tree import bulk
every_s, nodes, groups, *words = sys.argv[1:]
progress.PROGRESS_SECONDS = float(every_s)
bulk.NODES_AT_ONCE = export.NODES_AT_ONCE = files.NODES_AT_ONCE = int(nodes)
export.GROUPS_LISTED = int(groups)
tracemalloc.start()
try:
    cli.main(words)
finally:
    print(tracemalloc.get_traced_memory()[1], file=sys.stderr)
"""


class Size(NamedTuple):
    """How large a test is: the parts in which a command works, and the smaller of its trees, which has two of them."""

    nodes_at_once: int
    groups: int  # those that are listed together
    partitions: int  # of each group
    every_s: float  # between two lines that say how far it is


SMALL = Size(1_000, 5, 1_000, 0.02)
HEAP = "-Xmx4g"  # of the server that has a million nodes and more
FULL = Size(NODES_AT_ONCE, GROUPS_LISTED, 10_000, 1.0)


class Done(NamedTuple):
    """What a command printed beside its result, and the most memory that Python's objects took in it, in bytes."""

    said: list[str]
    peak_bytes: int


def run(size: Size, *words: str) -> Done:
    """Run a command; it still runs when it says for the first time how far it is."""
    sizes = map(str, (size.every_s, size.nodes_at_once, size.groups))
    command = [sys.executable, "-c", MEASURED, *sizes, *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        patience = threading.Timer(PATIENCE_SECONDS, process.kill)
        patience.start()
        assert process.stderr is not None
        said = [process.stderr.readline().rstrip("\n")]
        still_runs = process.poll() is None
        said += process.stderr.read().splitlines()
        patience.cancel()
    assert (process.returncode, still_runs) == (0, True), said
    return Done(said[:-1], int(said[-1]))


def write_file(path: Path, groups: int, partitions: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        for group in range(groups):
            for partition in range(partitions):
                out.write(f"/consumers/g{group:03}/offsets/clicks/{partition}:{group + partition}\n")


def check_progress(done: Done, doing: str, offsets: int) -> None:
    """Each line counts on from the line before, the first one before the end."""
    said = [line for line in done.said if line.startswith("progress: ")]
    counts = [int(line.split()[1]) for line in said]
    assert said == [f"progress: {number} offsets {doing}" for number in counts]
    assert counts == sorted(set(counts))
    assert counts, done.said
    assert 0 < counts[0] < offsets
    assert counts[-1] <= offsets


def imported_and_exported(address: str, folder: Path, groups: int, size: Size) -> list[Done]:
    """Import so many groups into a tree, and export them again; the file comes back as it was."""
    before, after, offsets = folder / f"before-{groups}", folder / f"after-{groups}", groups * size.partitions
    write_file(before, groups, size.partitions)
    into = run(size, "offsets", "import", str(before), "--zookeeper", address)
    out = run(size, "offsets", "export", str(after), "--zookeeper", address)
    assert after.read_bytes() == before.read_bytes()
    check_progress(into, "imported", offsets)
    check_progress(out, "exported", offsets)
    assert out.said[-1] == f"notice: {offsets} offsets of {groups} groups exported"
    return [into, out]


def check_bounded(chroot: str, folder: Path, size: Size) -> None:
    with Tree(chroot) as tree:
        upgrade(tree, run_id="large")
    few = imported_and_exported(chroot, folder, size.groups, size)
    many = imported_and_exported(chroot, folder, TIMES * size.groups, size)
    further = (TIMES - 1) * size.groups * size.partitions
    for less, more in zip(few, many, strict=True):
        growth = more.peak_bytes - less.peak_bytes
        assert growth < GROWTH_BYTES_PER_OFFSET_MAX * further, (less.peak_bytes, more.peak_bytes)


def test_four_times_as_many_offsets_take_no_more_memory_and_both_ways_say_how_far_they_are(
    chroot: str, tmp_path: Path
) -> None:
    check_bounded(chroot, tmp_path, SMALL)


@pytest.mark.long
def test_a_hundred_large_groups_take_no_more_memory_than_a_quarter_of_them(
    tmp_path: Path,
) -> None:
    with EmbeddedZooKeeper(fsync=False, max_session_timeout_ms=60_000, jvm_options=(HEAP,)) as server:
        check_bounded(server.hosts, tmp_path, FULL)
