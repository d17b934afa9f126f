"""The brokers that a command was given are those of the cluster whose topics the tree has, or it does nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.migrate.memory_tree import MemoryTree
from zkcoord.errors import UsageError
from zkcoord.operating.one_cluster import refuse_another_cluster
from zkcoord.tree.paths import CLUSTER_ID, FROM_KAFKA, FROM_ZOOKEEPER, SCHEMA
from zkcoord.tree.schema import Schema, encode_schema


def look(source: str, in_schema: str, in_zookeeper: str | None, told: str | None) -> None:
    """Look at a tree whose ids of the cluster are these, with brokers that tell this one."""
    tree = MemoryTree()
    tree.set(SCHEMA, encode_schema(Schema(revision="0003", layout="draft", topics=source, cluster_id=in_schema)))
    if in_zookeeper is not None:
        tree.set(CLUSTER_ID, b'{"version":"1","id":"%s"}' % in_zookeeper.encode())
    client = SimpleNamespace(servers="k9:9092", list_topics=lambda _: SimpleNamespace(cluster_id=told))
    refuse_another_cluster(tree, client)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "in_schema", "in_zookeeper"),
    [(FROM_ZOOKEEPER, "", "mine"), (FROM_KAFKA, "mine", None), (FROM_KAFKA, "mine", "an earlier one, left there")],
)
def test_f204_brokers_of_another_cluster_than_the_trees_are_refused(
    source: str, in_schema: str, in_zookeeper: str | None
) -> None:
    look(source, in_schema, in_zookeeper, "mine")
    with pytest.raises(UsageError, match=r"at k9:9092 are of the cluster 'other', the tree's topics of 'mine'"):
        look(source, in_schema, in_zookeeper, "other")


@pytest.mark.parametrize(
    ("source", "in_zookeeper", "told"),
    [(FROM_ZOOKEEPER, None, "other"), (FROM_KAFKA, "mine", "other"), (FROM_ZOOKEEPER, "mine", None)],
)
def test_f204_where_either_side_names_no_cluster_nothing_is_refused(
    source: str, in_zookeeper: str | None, told: str | None
) -> None:
    look(source, "", in_zookeeper, told)
