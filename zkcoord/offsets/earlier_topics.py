"""Finds topics for which a tree still has the offsets of an earlier topic of the same name.

A coordinator drops these offsets as soon as it has seen the new topic. If no member reads the topic, that is when a
member joins that does. Until then these offsets prove nothing, and offsets that a tool writes would be dropped with
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.bulk import Reading, data
from zkcoord.tree.paths import ROOT, Layout
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic import Mark, decode_mark, same_incarnation, topic_of


def created_again(
    read: Reading, layout: Layout, group: str, topics: Iterable[str], *, without_ids: bool = False
) -> list[str]:
    """Return those of the topics that were deleted and created again since the group marked them, in order.

    A deleted topic is not among them. `without_ids`: only those that a copy of the tree cannot tell from the earlier
    one, since the mark or the topic has no id. Raises CorruptError, with the path, for a mark that cannot be parsed.
    """
    names = sorted(topics)
    (root,) = data(read, [ROOT])
    marks = data(read, [layout.mark(group, name) for name in names])
    nodes = data(read, [layout.topic(name) for name in names])
    return [
        name
        for name, node, topic in zip(names, marks, nodes, strict=True)
        if (mark := _mark_in(node)) is not None
        and not _same(mark, name, topic, root)
        and not (without_ids and mark.topic_id is not None and topic_of(name, topic.data).topic_id is not None)
    ]


def refuse_earlier(
    read: Reading, layout: Layout, group: str, topics: Iterable[str], *, without_ids: bool = False
) -> None:
    """Raises UsageError if the tree has an earlier topic's offsets for one of these: offsets set now would be dropped,
    too. `without_ids` is as for `created_again`: a copy would take the earlier topic's offsets for the later one's."""
    if names := created_again(read, layout, group, topics, without_ids=without_ids):
        how = f"`zkcoord group pause {group}`, start a consumer that reads it, wait a moment, and run it again"
        raise UsageError(
            f"topic {names[0]} was deleted and created again since group {group} read it, and its coordinator drops"
            f" what the earlier one left when a consumer that reads it is there: {how}"
        )


def _same(mark: Mark, name: str, topic: Node, root: Node) -> bool:
    """True also if the topic was deleted. For a mirrored topic the ids in mark and topic are compared."""
    if topic.stat is None or root.stat is None:
        return True
    return same_incarnation(mark, topic_of(name, topic.data).topic_id, topic.stat.czxid, root.stat.czxid)


def _mark_in(node: Node) -> Mark | None:
    try:
        return decode_mark(node.data) if node.exists else None
    except CorruptError as error:
        raise CorruptError(f"{node.path}: {error}; an operator must mend it") from error
