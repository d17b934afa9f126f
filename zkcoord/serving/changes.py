"""How often a list changed, by the number that ZooKeeper keeps of it."""

from __future__ import annotations

from zkcoord.tree.snapshot import Node


def more_than_shown(before: Node | None, now: Node) -> bool:
    """True when children came and went between two looks at a list."""
    if before is None or before.stat is None or now.stat is None:
        return False
    shown = set(before.children).symmetric_difference(now.children)
    return now.stat.child_changes - before.stat.child_changes > len(shown)
