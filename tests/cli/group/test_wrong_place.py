"""A group is looked for in the wrong place: the chroot is missing, or the name is a topic's."""

from __future__ import annotations

import pytest

from tests.cli.group_tree import World
from tests.cli.program import Run
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import TOPICS
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper


def test_where_the_chroot_of_kafkas_brokers_was_forgotten_it_is_named(chroot: str, run: Run) -> None:
    with Tree(chroot) as tree:
        for path in ("/kafka", "/kafka/brokers", "/kafka/brokers/ids", "/other"):
            assert not tree.commit(Transaction(writes=(CreateNode(path),))).reason
    result = run("group", "list", "--zookeeper", chroot)

    assert result.exit_code == 7
    assert result.stderr == (
        f"error: no zkcoord tree at {chroot}, but Kafka's brokers are below /kafka:"
        f" give that chroot, as {chroot}/kafka\n"
    )


def test_a_topic_in_place_of_a_group_is_told_apart(chroot: str, run: Run) -> None:
    with Tree(chroot) as tree:
        World(tree, chroot).put(f"{TOPICS}/clicks", b'{"version":1,"partitions":{"0":[1]}}')
    result = run("group", "describe", "clicks", "--zookeeper", chroot)

    assert result.exit_code == 2
    assert result.stderr.endswith("'clicks' is a topic: `zkcoord topic describe clicks` shows who reads it\n")
