"""Writes that drop the nodes of a topic's earlier incarnation: its owners, its offsets, and at last its mark.

Every piece checks the mark's version, so pieces for two incarnations never mix. The last piece changes the mark. If the
coordinator dies in between, the next one finds the old mark, and drops the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from zkcoord.core.decisions import DropTopic
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import Layout
from zkcoord.tree.topic import Mark, MarkSeen, encode_mark
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, DeleteNode, SetNode, Write, parts


def drop_topic(
    decision: DropTopic,
    nodes: GroupNodes,
    owned: Iterable[TopicPartition],
    present: Mark | None,
    layout: Layout,
) -> Iterator[list[Write]]:
    """The writes of each piece, in order. They must follow the coordinator's guards in the transaction.

    `owned` holds those of the topic's partitions that have an owner node.
    """
    topic, view = decision.topic, nodes.view
    seen = nodes.marks[topic]
    path = layout.mark(view.group, topic)
    *pieces, last = [*parts(_removals(decision, nodes, owned, layout), lambda w: len(w.path) + WRITE_BYTES)] or [[]]
    for piece in pieces:
        yield [CheckNode(path, seen.version), *piece]
    if decision.again and present is not None:
        yield [*last, SetNode(path, encode_mark(next_mark(seen, present)), seen.version)]
        return
    left = view.leftovers[topic]
    if left.version is not None:
        last.append(DeleteNode(layout.topic_offsets(view.group, topic), left.version))
    yield [*last, DeleteNode(path, seen.version)]


def next_mark(seen: MarkSeen, present: Mark) -> Mark:
    """The mark of the present topic, with the next incarnation number."""
    return replace(present, incarnation=(seen.mark.incarnation if seen.mark is not None else 0) + 1)


def _removals(decision: DropTopic, nodes: GroupNodes, owned: Iterable[TopicPartition], layout: Layout) -> list[Write]:
    """The writes that end the owners and delete all offsets."""
    view, topic = nodes.view, decision.topic
    stays = frozenset(view.topics.get(topic, ()) if decision.again else ())
    writes: list[Write] = []
    for partition in sorted(owned):
        path, remains = layout.owner(view.group, partition), partition.partition in stays
        writes += layout.ownership.drop(path, view.owners[partition], stays=remains)
    offsets: list[TopicPartition] = sorted(decision.offsets)
    return [*writes, *(DeleteNode(layout.offset(view.group, p), decision.offsets[p].version) for p in offsets)]
