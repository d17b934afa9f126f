"""Reads the offsets of whole deployments from ZooKeeper, one part at a time, so that the memory in use does not
grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import MoveState
from zkcoord.errors import CorruptError
from zkcoord.offsets.lines import Exported
from zkcoord.offsets.reading import GROUPS_LISTED, kept_by
from zkcoord.tree.bulk import NODES_AT_ONCE, Reading, children, data
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import Layout, partition_numbers
from zkcoord.tree.record import record_in
from zkcoord.tree.snapshot import Node


def export(read: Reading, layout: Layout, groups: Sequence[str]) -> Iterator[Exported | CorruptError]:
    """Return all offsets of these groups, ordered by group, topic and partition.

    A node that cannot be read as an offset yields the error. Nodes without an offset are left out.
    """
    named = _partitions(read, layout, groups)
    while part := list(islice(named, NODES_AT_ONCE)):
        nodes = data(read, [layout.offset(group, partition) for group, partition in part])
        for (group, partition), node in zip(part, nodes, strict=True):
            found = _offset(node)
            if isinstance(found, CorruptError):
                yield found
            elif found is not None:
                yield Exported(group, partition, found)


def behind(read: Reading, layout: Layout, groups: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (those of these groups that were moved to another tree, where they are read; those of the others whose
    offsets count in Kafka). ZooKeeper has the latter only as of the last checkpoint."""
    moved, late = [], []
    for group, node in zip(groups, data(read, [layout.record(group) for group in groups]), strict=True):
        with suppress(CorruptError):  # `group describe` says what must be mended
            record = record_in(node)
            kept = kept_by(layout, record)
            if record is not None and record.moved is not None and record.moved.state is MoveState.GONE:
                moved.append(group)
            elif not kept.node_counts:
                late.append(group)
    return moved, late


def _partitions(read: Reading, layout: Layout, groups: Sequence[str]) -> Iterator[tuple[str, TopicPartition]]:
    rest = iter(groups)
    while listed := list(islice(rest, GROUPS_LISTED)):
        topics = children(read, [layout.offsets(group) for group in listed])
        named = [(group, topic) for group, node in zip(listed, topics, strict=True) for topic in node.children]
        for (group, topic), node in zip(
            named, children(read, [layout.topic_offsets(*each) for each in named]), strict=True
        ):
            for number in sorted(partition_numbers(node.children)):
                yield group, TopicPartition(topic, number)


def _offset(node: Node) -> int | CorruptError | None:
    try:
        return decode_offset(node.data)
    except CorruptError as error:
        return CorruptError(f"{node.path}: {error}; an operator must set it to a number")
