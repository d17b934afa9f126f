"""F224: a consumer whose brokers are of another cluster than the tree's topics. It reads nothing from them, and commits
nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from zkcoord.errors import UsageError
from zkcoord.member.cluster_check import ClusterCheck
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import CLUSTER_ID, FROM_KAFKA, FROM_ZOOKEEPER, SCHEMA
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Kind, Node, Stat

STAT = Stat(version=0, czxid=1, ephemeral_owner=0)


def schema(source: str, cluster_id: str = "") -> Node:
    return Node(
        SCHEMA,
        Kind.DATA,
        STAT,
        encode_schema(Schema(revision="0003", layout="draft", topics=source, cluster_id=cluster_id)),
    )


def own(cluster_id: str | None) -> Node:
    """The node in which Kafka writes its cluster id."""
    if cluster_id is None:
        return Node(CLUSTER_ID, Kind.DATA, None)
    return Node(CLUSTER_ID, Kind.DATA, STAT, b'{"version":"1","id":"%s"}' % cluster_id.encode())


def checked(told: str | None, *nodes: Node) -> UsageError | None:
    check = ClusterCheck(lambda: told, "k9:9092")
    for node in nodes:
        check.take(node)
    return check.error


@pytest.mark.parametrize(
    "nodes",
    [
        (schema(FROM_ZOOKEEPER), own("mine")),
        (own("mine"), schema(FROM_ZOOKEEPER)),
        (schema(FROM_KAFKA, "mine"), own(None)),
        (schema(FROM_KAFKA, "mine"), own("an earlier one, left there")),
        (own(None), schema(FROM_KAFKA), schema(FROM_KAFKA, "mine")),  # a new tree that gets its cluster id meanwhile
    ],
)
def test_f224_brokers_of_another_cluster_than_the_trees_are_an_error_that_names_both(nodes: tuple[Node, ...]) -> None:
    assert checked("mine", *nodes) is None
    error = checked("other", *nodes)
    assert error is not None
    assert "at k9:9092 are of the cluster 'other', the tree's topics of 'mine': correct the bootstrap" in str(error)


@pytest.mark.parametrize(
    ("told", "nodes"),
    [
        (None, (schema(FROM_ZOOKEEPER), own("mine"))),  # not told yet, or the broker is older than 0.10.1
        ("other", (schema(FROM_ZOOKEEPER), own(None))),
        ("other", (schema(FROM_KAFKA), own("mine"))),
        ("other", (own("mine"),)),
        ("other", (Node(SCHEMA, Kind.DATA, STAT, b"{"), own("mine"))),
    ],
)
def test_f224_where_either_side_names_no_cluster_nothing_is_an_error(told: str | None, nodes: tuple[Node, ...]) -> None:
    assert checked(told, *nodes) is None


def test_a_member_without_kafka_reads_no_cluster_node() -> None:
    wanted: list[str] = []

    class Wants:
        def want(self, path: str, **_: Any) -> None:
            wanted.append(path)

    tracker = cast("Tracker", Wants())
    ClusterCheck(None, "").begin(tracker, "first")
    assert wanted == []
    ClusterCheck(lambda: None, "k").begin(tracker, "first")
    assert wanted == [CLUSTER_ID]
