"""The tree's revisions beside a coordinator and a consumer that run, on a real server."""

from __future__ import annotations

import json

import pytest

from tests.integration.processes import COORDINATOR, READER, Scene, judge, share
from tests.waiting import wait_until
from zkcoord.migrate import Mark, current, downgrade, plan, upgrade
from zkcoord.shell.ports import Outcome
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import EPOCH, SCHEMA
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import SetNode

pytestmark = pytest.mark.zookeeper


def test_f130_a_tree_is_moved_forward_and_back_beside_a_coordinator_while_a_group_reads_on(chroot: str) -> None:
    with Tree(chroot) as tree, Scene(chroot) as scene:
        upgrade(tree, goal="0001", run_id="test")
        (node,) = tree.read([Read(SCHEMA)])
        assert node.stat is not None
        document = {key: value for key, value in json.loads(node.data).items() if key != "tree_id"}
        scene.write(SetNode(SCHEMA, json.dumps(document).encode(), node.stat.version))  # of an earlier release
        coordinator = scene.child(COORDINATOR)
        coordinator.wait("elected")
        readers = [scene.child(READER)]
        wait_until(share(readers), "the consumer reads all")

        for then in ("0002", "0001"):
            elected, deposed = len(coordinator.of("elected")), len(coordinator.of("deposed"))
            _begin_and_die(tree, then)
            readers.append(scene.child(READER))  # asks for a write of the coordinator
            wait_until(lambda n=deposed: len(coordinator.of("deposed")) > n, "the coordinator is deposed")
            fetched = len(readers[0].of("fetched"))
            wait_until(lambda n=fetched: len(readers[0].of("fetched")) > n + 50, "the first consumer reads on")
            assert len(coordinator.of("elected")) == elected
            assert (upgrade if then == "0002" else downgrade)(tree, goal=then, run_id="bob-1")
            wait_until(lambda n=elected: len(coordinator.of("elected")) > n, "the coordinator serves again")
            wait_until(share(readers), "the new consumer has its share, too")

        schema = current(tree)
        assert schema is not None
        assert (schema.revision, schema.tree_id != "", schema.migration) == ("0001", True, None)
        judge(readers)


def _begin_and_die(tree: Tree, then: str) -> None:
    """What a run leaves that dies behind its first batch."""
    schema, epoch = tree.read([Read(SCHEMA), Read(EPOCH)])
    now = current(tree)
    assert now is not None
    first = plan.begin(schema, epoch, Mark(old=now.revision, new=then, run="ann-1"))
    assert tree.commit(first).outcome is Outcome.COMMITTED
