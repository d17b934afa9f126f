"""Ends a consumer whose brokers belong to another Kafka cluster than the tree's topics.

Such a consumer would read the records of one cluster, and commit their offsets for the topics of the other.
"""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.core.one_cluster import two_clusters
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.brokers_move import cluster_of
from zkcoord.tree.paths import CLUSTER_ID, SCHEMA
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Node


class ClusterCheck:
    """Compares the two clusters' ids, for one consumer. Any thread may read `error`."""

    def __init__(self, told: Callable[[], str | None] | None, servers: str) -> None:
        """`told` returns the cluster id that the brokers at `servers` have reported, without a request to them. With
        None nothing is compared."""
        self._told, self._servers = told, servers
        self._nodes: dict[str, Node] = {}
        self._named: str | None = None  # the cluster's id in the tree

    def begin(self, tracker: Tracker, scope: str) -> None:
        """A session begins: have the tree's cluster id read beside the schema."""
        if self._told is not None:
            tracker.want(CLUSTER_ID, scope=scope)

    def take(self, node: Node) -> None:
        """Take in a node that was read, if it is about the tree's cluster. Another check reports a schema that cannot
        be read."""
        if self._told is None or node.path not in (SCHEMA, CLUSTER_ID):
            return
        self._nodes[node.path] = node
        schema, own = self._nodes.get(SCHEMA), self._nodes.get(CLUSTER_ID)
        if schema is None or own is None or not schema.exists:
            return
        try:
            self._named = cluster_of(decode_schema(schema.data), own)
        except ZkcoordError:
            return

    @property
    def error(self) -> UsageError | None:
        """The error that there are two clusters. None: there is one, or one side does not name its cluster yet."""
        if self._told is None or self._named is None:
            return None
        return two_clusters(self._told(), self._named, self._servers)
