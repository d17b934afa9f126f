"""The engine on a real server."""

import pytest

from zkcoord.migrate import Rehearsal, Revision, current, upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.schema import Schema
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper


def test_a_tree_goes_from_nothing_to_head(chroot: str, revisions: tuple[Revision, ...]) -> None:
    with Tree(chroot) as tree:
        upgrade(Rehearsal(tree), run_id="dry", revisions=revisions)
        assert current(tree) is None

        assert upgrade(tree, goal="0001", run_id="ann-1", tree_id="5e0b", revisions=revisions) == ("0001",)
        tree.commit(Transaction(writes=(CreateNode("/zkcoord/groups/g", b"old"),)))
        assert upgrade(tree, run_id="ann-2", tree_id="other", revisions=revisions) == ("0002", "0003")

        group, epoch, parents = tree.read(
            [Read("/zkcoord/groups/g"), Read("/zkcoord/epoch"), Read("/consumers", Kind.CHILDREN)]
        )
        assert (group.data, epoch.data, parents.children) == (b"new", b"2", ("groups",))
        assert current(tree) == Schema(revision="0003", layout="draft", tree_id="5e0b")
