"""Commits to Kafka by other programs than zkcoord."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.waiting import PATIENCE_SECONDS, wait_until


def commit_as_stranger(admin: Any, group: str, topic: str, offsets: Mapping[int, int], metadata: str = "") -> None:
    """Commit these offsets, and return when Kafka has accepted them.

    (The first commits to a broker make it create its log of offsets. Until it can write there, it refuses commits by an
    error for each partition, for which the client raises nothing.)
    """

    def taken() -> bool:
        named = [TopicPartition(topic, number, offset, metadata) for number, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, named)
        told = admin.alter_consumer_group_offsets([asked])[group].result(PATIENCE_SECONDS)
        return all(one.error is None for one in told.topic_partitions)

    wait_until(taken, "Kafka takes the commit")
