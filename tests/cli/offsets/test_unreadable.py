"""`zkcoord offsets export` and `zkcoord backup` of nodes that their user may not read, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.group_tree import World
from tests.cli.program import Run
from zkcoord.core.model import TopicPartition
from zkcoord.shell.zk.blocking import Tree
from zkcoord.shell.zk.config import Acl, ZooKeeperConfig
from zkcoord.tree.paths import DRAFT

pytestmark = pytest.mark.zookeeper

ALICES = ZooKeeperConfig(digest="alice:secret", acl=(Acl(31, "auth", ""),))
WHY = "ZooKeeper refuses to let us read it (NoAuth): an operator must grant READ"
G, H = "/consumers/groups/g/offsets", "/consumers/groups/h/offsets"


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """Of the group g only alice may read a topic's folder, of h four offsets, and a node of zkcoord's own."""
    with Tree(chroot) as tree, Tree(chroot, config=ALICES) as hers:
        world = World(tree, chroot)
        world.put(DRAFT.offset("g", TopicPartition("clicks", 0)), b"7")
        world.put(DRAFT.offset("h", TopicPartition("clicks", 0)), b"1")
        alices = World(hers, chroot)
        alices.put(DRAFT.offset("g", TopicPartition("views", 0)), b"3")
        for number in range(1, 5):
            alices.put(DRAFT.offset("h", TopicPartition("clicks", number)), b"2")
        alices.put("/zkcoord/more")
        yield world


def test_f314_an_export_writes_what_it_may_read_and_names_of_each_group_what_it_may_not(
    world: World, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    result = run("offsets", "export", str(file), "--zookeeper", world.address)
    assert file.read_text() == "/consumers/g/offsets/clicks/0:7\n/consumers/h/offsets/clicks/0:1\n"
    assert (result.exit_code, result.stderr) == (
        2,
        "notice: 2 offsets of 2 groups exported\n"
        "error: 5 nodes could not be read, and what is there is not exported:\n"
        f"  group g: {G}/views: {WHY}\n"
        f"  group h: {H}/clicks/1, {H}/clicks/2, {H}/clicks/3 and 1 more: {WHY}\n",
    )
    assert run("offsets", "export", str(tmp_path / "g"), "--group", "h", "--zookeeper", world.address).exit_code == 2


def test_f314_there_is_no_backup_without_what_may_not_be_read_and_all_of_it_is_named(
    world: World, run: Run, tmp_path: Path
) -> None:
    result = run("backup", str(tmp_path / "f"), "--zookeeper", world.address)
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert result.stderr.splitlines() == [
        "error: 6 nodes could not be read, and there is no backup without them:",
        f"  /zkcoord/more: {WHY}",
        f"  group g: {G}/views: {WHY}",
        *(line for line in result.stderr.splitlines() if line.startswith(f"  group h: {H}/clicks/")),
    ]
    assert result.stderr.endswith(f" and 1 more: {WHY}\n")


def test_of_many_groups_that_may_not_be_read_twenty_have_a_line(chroot: str, run: Run, tmp_path: Path) -> None:
    with Tree(chroot) as tree, Tree(chroot, config=ALICES) as hers:
        world, alices = World(tree, chroot), World(hers, chroot)
        for number in range(22):
            world.put(DRAFT.offsets(f"g{number:02}"))
            alices.put(DRAFT.topic_offsets(f"g{number:02}", "t"))
        result = run("offsets", "export", str(tmp_path / "f"), "--zookeeper", chroot)
    first, *lines = result.stderr.splitlines()[1:]
    assert (result.exit_code, first.split(",")[0], len(lines)) == (2, "error: 22 nodes could not be read", 21)
    assert lines[-1] == "  the same is so of 2 further groups"
