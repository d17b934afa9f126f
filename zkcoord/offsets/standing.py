"""Finds the partitions whose offsets matter: those of existing topics."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.tree.bulk import Reading, children, data
from zkcoord.tree.paths import Layout
from zkcoord.tree.topic import topic_of


def standing(read: Reading, layout: Layout, told: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions that Kafka told, and those of the tree's topics.

    A broker that has just started answers before it knows its topics. By its answer alone no offset would matter.
    """
    (folder,) = children(read, [layout.topics])
    names = sorted(folder.children)
    found = set(told)
    for name, node in zip(names, data(read, [layout.topic(name) for name in names]), strict=True):
        with suppress(CorruptError):  # `group describe` says what must be mended
            found |= {TopicPartition(name, number) for number in topic_of(name, node.data).partitions}
    return frozenset(found)
