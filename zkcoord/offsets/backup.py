"""Reads everything that zkcoord and the groups have in ZooKeeper, one part at a time."""

from __future__ import annotations

from collections.abc import Iterator

from zkcoord.offsets.backup_file import Saved
from zkcoord.tree.bulk import NODES_AT_ONCE, Reading, children, data
from zkcoord.tree.paths import ROOT, Layout, Place

LEAVES = (Place.OFFSET, Place.OWNER, Place.COMMAND, Place.INSTANCE)
"""Nodes without children. Their lists are not read, since there may be hundreds of thousands of offsets."""


def saved(read: Reading, layout: Layout) -> Iterator[Saved]:
    """Return all persistent nodes below /zkcoord and below the groups' parent. A parent comes before its children.

    Ephemeral nodes (registrations, candidates, claims) are left out: they end with their sessions. A topic's mark comes
    before its offsets: if the topic is created again meanwhile, no offset of the earlier topic has the later mark.
    """
    for root in (ROOT, layout.groups):
        yield from _below(read, layout, root)


def _below(read: Reading, layout: Layout, root: str) -> Iterator[Saved]:
    stack = [root]
    while stack:
        part = [stack.pop() for _ in range(min(len(stack), NODES_AT_ONCE))]
        found = [node for node in data(read, part) if node.stat is not None and not node.stat.ephemeral_owner]
        yield from (Saved(node.path, node.data) for node in found)
        inner = [node.path for node in found if not _is_leaf(layout, node.path)]
        for folder in children(read, inner):
            stack += [f"{folder.path}/{name}" for name in folder.children]


def _is_leaf(layout: Layout, path: str) -> bool:
    address = layout.parse(path)
    return address is not None and address.place in LEAVES
