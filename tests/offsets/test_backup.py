"""What a backup has of a tree that changes meanwhile, and of requests; on trees in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.migrate.memory_tree import MemoryTree
from tests.offsets.test_restore import mark, tree, whole
from tests.offsets.two_trees import P0, put
from zkcoord.core.record import GroupRecord, Request
from zkcoord.offsets.backup import saved
from zkcoord.offsets.restore import Restore
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import decode_record, encode_record
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


def test_f191_a_restored_group_stays_handed_over_and_loses_other_requests() -> None:
    old, there = tree(), MemoryTree()
    pause = Request(run="r1", handed_over="done")
    requests = {"pause": pause, "hold": Request(run="r2")}
    put(old, {DRAFT.record("g"): encode_record(GroupRecord(store_name="kafka", requests=requests))})
    whole(there, list(saved(old.read, DRAFT)), Restore(there, DRAFT))
    assert decode_record(there.data()[DRAFT.record("g")]).requests == {"pause": pause}
