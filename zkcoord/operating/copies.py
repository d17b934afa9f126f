"""Removes a group's copy after a move that was given up, or that cannot end. A removal that breaks off is run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zkcoord.core.moved import MoveState
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.words import some
from zkcoord.errors import UsageError
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.side import Side
from zkcoord.offsets.writing import NAMED_MAX, readers_of
from zkcoord.operating.releasing import remove
from zkcoord.operating.requesting import read_record
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import record_in
from zkcoord.tree.registration import TOMBSTONE
from zkcoord.tree.snapshot import Node


def remove_copy(source: Side, target: Side, group: str) -> bool:
    """Remove the group's copy from the target. Return False if the target has no copy of a move from the source.

    If the group was at the target before it was moved to the source, the target gets its tombstone back. Raise
    UsageError if the move is not given up, or if somebody is registered at the copy.
    """
    _, copy = target.record(group)  # read before the source's record, which a new move writes before the copy
    if not _is_copy(copy, source):
        return False
    _, here = source.record(group)
    if here is not None and here.moved is not None and here.moved.tree == target.tree_id:
        raise UsageError(f"group {group} at {source.address} {here.moved.where()}: its copy stays")

    def still(record: GroupRecord | None) -> GroupRecord:
        if record is None or copy is None or record.moved != copy.moved:
            raise UsageError(f"group {group}: somebody moves it again: its copy at {target.address} stays")
        return record

    if copy is not None and copy.moved is not None and copy.moved.back:
        gone = replace(copy.moved, state=MoveState.GONE, back=False)

        def edit(record: GroupRecord | None) -> GroupRecord:
            done = record is not None and record.moved == gone  # by an attempt whose answer was lost
            return record if done and record is not None else replace(still(record), moved=gone)

        target.edit(group, edit)
        return True

    _remove(target.tree, target.layout, group, still)
    return True


def remove_lost_copy(tree: BlockingTree, layout: Layout, group: str, address: str) -> None:
    """Remove the group's copy, and its offsets, from this tree. The copy comes from the tree at `address`, which is
    lost.

    Raise UsageError if there is no copy from `address`, or if somebody is registered at the copy.
    """

    def still(record: GroupRecord | None) -> None:
        moved = (record or DEFAULT_RECORD).moved
        if moved is None or (moved.state, moved.address) != (MoveState.ARRIVING, address):
            found = "it is no copy" if moved is None else f"it {moved.where()}"
            raise UsageError(f"group {group} is not arriving from {address} here: {found}")

    still(read_record(tree, layout, group))
    _remove(tree, layout, group, still)


def _remove(tree: BlockingTree, layout: Layout, group: str, still: Callable[[GroupRecord | None], object]) -> None:
    """Remove everything of the group. `still` raises if the record is no longer the copy's."""

    def refusal(node: Node) -> str:
        still(record_in(node))
        readers = readers_of(tree.read, layout, group)
        names = [name for name in (*readers.ours, *readers.others) if name != TOMBSTONE]  # of an earlier move from here
        return f"{some(names, NAMED_MAX)} registered there: stop these consumers first" if names else ""

    channels = () if layout.channels is None else (layout.channels_of(group),)
    remove(tree, (*channels, layout.group(group), layout.record(group)), layout.record(group), refusal)


def _is_copy(record: GroupRecord | None, source: Side) -> bool:
    moved = (record or DEFAULT_RECORD).moved
    return moved is not None and moved.state is MoveState.ARRIVING and moved.tree == source.tree_id
