"""The groups of a tree."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.group_report import deleted_groups, group_names, may_name_a_group, read_tree
from zkcoord.legacy.walk import group_names as old_group_names
from zkcoord.migrate import BlockingTree, current
from zkcoord.tree.paths import LEGACY, Layout


def present_groups(tree: BlockingTree, layout: Layout) -> list[str]:
    """Return all groups that were not deleted, sorted by name."""
    names = group_names(tree, layout)
    deleted = deleted_groups(tree, layout, names)
    return [name for name in names if name not in deleted]


def groups_of(tree: BlockingTree, address: str) -> tuple[Layout, str, Sequence[str]]:
    """Return the layout, the tree's id and all groups. In a deployment without zkcoord all groups are of old
    consumers."""
    schema = current(tree)
    if schema is None:
        return LEGACY, "", old_group_names(tree.read)
    layout = read_tree(tree, address).layout
    return layout, schema.tree_id, [name for name in group_names(tree, layout) if may_name_a_group(name)]
