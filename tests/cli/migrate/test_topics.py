"""`zkcoord migrate topics`: in which groups old consumers read /brokers/topics, which a move to KRaft ends."""

from __future__ import annotations

import pytest

from tests.legacy.groups import static
from tests.migrate.test_topics import tree_with
from zkcoord.cli.migrate.topics import old_members
from zkcoord.tree.paths import LAYOUTS
from zkcoord.tree.snapshot import parents

OURS = '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1","coordination":"zkcoord/1"}'
NAMES = {"g_host-1416335000123-1a2b3c4d": static(t=1), "g_host-17-zf1ff97c": OURS}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("old", [True, False])
def test_a_group_with_an_old_consumer_is_an_obstacle_to_the_switch_of_the_topics_source(layout: str, old: bool) -> None:
    tree, ids = tree_with(layout), LAYOUTS[layout].ids("g")
    for path in (*parents(f"{ids}/x"), *(f"{ids}/{name}" for name in NAMES)):
        if path not in tree.nodes and (old or not path.endswith("1a2b3c4d")):
            tree.set(path, NAMES.get(path.rpartition("/")[2], "").encode())
    found = old_members(tree)
    beside_old = old and layout == "legacy"  # the layout draft is of zkcoord's consumers alone
    assert list(found) == (["group g has the old consumer g_host-1416335000123-1a2b3c4d"] if beside_old else [])
