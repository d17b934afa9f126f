"""Commits to Kafka by other programs than zkcoord."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.waiting import PATIENCE_SECONDS, wait_until


def commit_as_stranger(admin: Any, group: str, topic: str, offsets: Mapping[int, int], metadata: str = "") -> None:
    """Commit these, and return when Kafka has taken them.

    (The first commits of a broker's life make its log of offsets. Until it can write there the broker refuses them:
    partition by partition, which raises nothing.)
    """

    def taken() -> bool:
        named = [TopicPartition(topic, number, offset, metadata) for number, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, named)
        told = admin.alter_consumer_group_offsets([asked])[group].result(PATIENCE_SECONDS)
        return all(one.error is None for one in told.topic_partitions)

    wait_until(taken, "Kafka takes the commit")
