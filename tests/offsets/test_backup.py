"""What a backup has of a tree that changes meanwhile, and of requests; on trees in memory."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from tests.migrate.memory_tree import MemoryTree
from tests.offsets.test_restore import mark, tree, whole
from tests.offsets.two_trees import P0, put
from zkcoord.core.record import GroupRecord, Request
from zkcoord.offsets.backup import saved
from zkcoord.offsets.restore import Restore
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import decode_record, encode_record


@pytest.mark.parametrize("layout", [DRAFT, LEGACY])
def test_f321_no_offset_is_saved_beside_the_mark_of_a_later_topic(layout: Layout) -> None:
    """A restore would have set the later topic's offset forward to that of the earlier one."""
    later = {layout.mark("g", "clicks"): mark(4), layout.offset("g", P0): b"5"}
    for at in itertools.count(1):
        old = tree(layout)
        put(old, {layout.mark("g", "clicks"): mark(3)})
        reads = old.act_at_read(at, partial(put, old, later))
        found = {each.path: each.data for each in saved(old.read, layout)}
        pair = found[layout.mark("g", "clicks")], found[layout.offset("g", P0)]
        assert pair != (mark(4), b"100"), at
        if at >= reads():
            break


def test_f191_a_restored_group_stays_handed_over_and_loses_other_requests() -> None:
    old, there = tree(), MemoryTree()
    pause = Request(run="r1", handed_over="done")
    requests = {"pause": pause, "hold": Request(run="r2")}
    put(old, {DRAFT.record("g"): encode_record(GroupRecord(store_name="kafka", requests=requests))})
    whole(there, list(saved(old.read, DRAFT)), Restore(there, DRAFT))
    assert decode_record(there.data()[DRAFT.record("g")]).requests == {"pause": pause}
