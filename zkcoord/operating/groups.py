"""The groups of a tree."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.errors import UsageError
from zkcoord.group_report import GroupReport, deleted_groups, group_names, may_name_a_group, read_group, read_tree
from zkcoord.legacy.walk import group_names as old_group_names
from zkcoord.migrate import BlockingTree, current
from zkcoord.operating.saying import warn
from zkcoord.shell.ports import UnreadableError
from zkcoord.tree.paths import LEGACY, Layout


def present_groups(tree: BlockingTree, layout: Layout) -> list[str]:
    """Return all groups that were not deleted, sorted by name."""
    names = group_names(tree, layout)
    deleted = _deleted(tree, layout, names)
    return [name for name in names if name not in deleted]


def _deleted(tree: BlockingTree, layout: Layout, names: Sequence[str]) -> frozenset[str]:
    try:
        return deleted_groups(tree, layout, names)
    except UnreadableError:  # a group that may not be read hides no other one
        if len(names) == 1:
            return frozenset()
        return frozenset().union(*(_deleted(tree, layout, [name]) for name in names))


def reports_of(tree: BlockingTree, layout: Layout, names: Sequence[str]) -> list[GroupReport]:
    """Return the reports of these groups. Of several, one that is gone meanwhile is left out, and one that this program
    may not read, too, with a warning."""
    found = []
    for name in names:
        try:
            found.append(read_group(tree, layout, name))
        except UsageError as error:
            if len(names) == 1:
                raise
            if isinstance(error, UnreadableError):
                warn(f"group {name} cannot be read: {error}")
    return found


def groups_of(tree: BlockingTree, address: str) -> tuple[Layout, str, Sequence[str]]:
    """Return the layout, the tree's id and all groups. In a deployment without zkcoord all groups are of old
    consumers."""
    schema = current(tree)
    if schema is None:
        return LEGACY, "", old_group_names(tree.read)
    layout = read_tree(tree, address).layout
    return layout, schema.tree_id, [name for name in group_names(tree, layout) if may_name_a_group(name)]
