"""Checks that a command's brokers are of the cluster whose topics the tree has."""

from __future__ import annotations

from zkcoord.core.one_cluster import two_clusters
from zkcoord.kafka.client import TIMEOUT_MS, KafkaClient
from zkcoord.migrate import current
from zkcoord.offsets.ports import OffsetTree
from zkcoord.tree.brokers_move import cluster_of
from zkcoord.tree.paths import CLUSTER_ID
from zkcoord.tree.snapshot import Read


def refuse_another_cluster(tree: OffsetTree, client: KafkaClient) -> None:
    """Raise UsageError if the brokers are of another cluster. Its commits are of another group, and its logs have other
    records.

    A tree that names no cluster, for example with brokers before 0.10.1, is assumed to be of the brokers' cluster.
    """
    named = cluster_of(current(tree), tree.read([Read(CLUSTER_ID)])[0])
    told = None if named is None else client.list_topics(TIMEOUT_MS / 1000).cluster_id
    error = two_clusters(told, named, client.servers)
    if error is not None:
        raise error
