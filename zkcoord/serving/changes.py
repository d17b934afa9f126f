"""Tells whether a list changed more often than two looks at it show, by ZooKeeper's count of its changes."""

from __future__ import annotations

from zkcoord.tree.snapshot import Node


def more_than_shown(before: Node | None, now: Node) -> bool:
    """True when children were created and deleted between two looks at a list."""
    if before is None or before.stat is None or now.stat is None:
        return False
    shown = set(before.children).symmetric_difference(now.children)
    return now.stat.child_changes - before.stat.child_changes > len(shown)
