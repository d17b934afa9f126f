"""Holds the brokers that a command was given against the cluster whose topics the tree has."""

from __future__ import annotations

from zkcoord.core.one_cluster import two_clusters
from zkcoord.kafka.client import TIMEOUT_MS, KafkaClient
from zkcoord.migrate import current
from zkcoord.offsets.ports import OffsetTree
from zkcoord.tree.brokers_move import cluster_of
from zkcoord.tree.paths import CLUSTER_ID
from zkcoord.tree.snapshot import Read


def refuse_another_cluster(tree: OffsetTree, client: KafkaClient) -> None:
    """UsageError when the brokers are of another cluster: its commits are another group's, and its logs other records.

    A tree that names no cluster, as one beside brokers of before 0.10.1, is taken to be theirs.
    """
    named = cluster_of(current(tree), tree.read([Read(CLUSTER_ID)])[0])
    told = None if named is None else client.list_topics(TIMEOUT_MS / 1000).cluster_id
    error = two_clusters(told, named, client.servers)
    if error is not None:
        raise error
