"""The switch of the topics' source in a cluster with a topic that is too large for its node."""

from __future__ import annotations

from dataclasses import replace

from tests.migrate.test_topics import CLUSTER, mirror_in, put_topic, switch, tree_with
from zkcoord.core.topic_mirror import Topic
from zkcoord.migrate import current


def test_f267_the_switch_ends_though_a_topic_is_too_large_to_be_written_with_its_replicas() -> None:
    tree = tree_with()
    large = Topic(topic_id="idL", partitions=dict.fromkeys(range(60_000), (1, 2, 3)))
    put_topic(tree, "large", large)
    assert switch(tree, cluster=replace(CLUSTER, topics={**CLUSTER.topics, "large": large})) is True
    schema = current(tree)
    assert schema is not None and (schema.topics, schema.migration) == ("kafka", None)
    assert mirror_in(tree).topics["large"] == replace(large, partitions=dict.fromkeys(large.partitions, ()))
