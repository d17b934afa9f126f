"""The parts of a group's view that come from nodes which are read only on request: a topic's remaining nodes, and
offsets."""

from __future__ import annotations

from collections.abc import Iterable

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Leftovers, OffsetSeen
from zkcoord.errors import CorruptError
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import Place, partition_number, partition_numbers
from zkcoord.tree.view import GroupNodes


def leftovers(nodes: GroupNodes, topic: str) -> Leftovers | None:
    """The remaining nodes of a topic, except its owners. None: its lists are not read yet."""
    listed = [nodes.lists.get((Place.MARK, topic)), nodes.lists.get((Place.OFFSETS, topic))]
    below = [node for node in listed if node is not None]
    if len(below) < len(listed):
        return None
    stat = below[-1].stat
    numbered = (TopicPartition(topic, number) for number in partition_numbers(below[-1].children))
    return Leftovers(
        offsets={p: nodes.offsets[p] for p in numbered if p in nodes.offsets},
        version=stat.version if stat is not None else None,
        strange=tuple(f"{n.path}/{name}" for n in below for name in n.children if partition_number(name) is None),
    )


def committed(nodes: GroupNodes, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """The offsets of these, as they were read. None: there is no readable offset."""
    return {partition: _offset(nodes.offsets.get(partition)) for partition in partitions}


def versions(nodes: GroupNodes, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """The versions of the offsets of these, as they were read. None: there is no such node."""
    seen = {partition: nodes.offsets.get(partition) for partition in partitions}
    return {partition: None if offset is None else offset.version for partition, offset in seen.items()}


def _offset(seen: OffsetSeen | None) -> int | None:
    try:
        return None if seen is None else decode_offset(seen.text.encode("utf-8"))
    except CorruptError:
        return None
