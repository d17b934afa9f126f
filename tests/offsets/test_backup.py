"""A backup is read while the tree changes, on trees in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.migrate.memory_tree import MemoryTree
from tests.offsets.test_restore import mark, tree
from tests.offsets.two_trees import P0, put
from zkcoord.offsets.backup import saved
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.snapshot import Read


@pytest.mark.parametrize("layout", [DRAFT, LEGACY])
def test_f321_no_offset_is_saved_beside_the_mark_of_a_later_topic(layout: Layout) -> None:
    """A restore would have set the later topic's offset forward to that of the earlier one."""
    at, reads = 0, 1
    while at < reads:
        at, reads, old = at + 1, 0, tree(layout)
        put(old, {layout.mark("g", "clicks"): mark(3)})

        def creates_again(_: Sequence[Read], old: MemoryTree = old, at: int = at) -> None:
            nonlocal reads
            reads += 1
            if reads == at:
                put(old, {layout.mark("g", "clicks"): mark(4), layout.offset("g", P0): b"5"})

        old.before_read = creates_again
        found = {each.path: each.data for each in saved(old.read, layout)}
        pair = found[layout.mark("g", "clicks")], found[layout.offset("g", P0)]
        assert pair != (mark(4), b"100"), at
