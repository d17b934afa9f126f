"""The offset stores that a group can have, and in what they differ (docs/offsets.md).

The rest of the product asks a store these questions. It compares no names: a test holds which files ask.
"""

from __future__ import annotations

from typing import NamedTuple


class OffsetStore(NamedTuple):
    """One way to keep a group's offsets.

    `tenured`: offsets are in Kafka, too. Each start begins a tenure, and each commit to Kafka names its tenure.
    `node_counts`: the node in ZooKeeper holds the committed offset. Otherwise Kafka holds it, and a write to the node
    only ends a tenure.
    """

    name: str
    tenured: bool
    node_counts: bool


_STORES = (
    OffsetStore("zookeeper", tenured=False, node_counts=True),
    OffsetStore("dual", tenured=True, node_counts=True),
    OffsetStore("kafka", tenured=True, node_counts=False),
)

ZOOKEEPER, DUAL, KAFKA = STORES = tuple(store.name for store in _STORES)
"""Where offsets are committed: to ZooKeeper; to ZooKeeper, then to Kafka; to Kafka.

A group moves only between neighbours: from ZooKeeper to Kafka by way of `dual`, and back.
"""

_BY_NAME = {store.name: store for store in _STORES}


def offset_store(name: str) -> OffsetStore:
    """Return the store of this name. A later version's store, which is not known here, counts as one like `dual`: the
    node stays true, and nothing is left out of Kafka.

    >>> offset_store("kafka").node_counts
    False
    """
    return _BY_NAME.get(name) or OffsetStore(name, tenured=True, node_counts=True)
