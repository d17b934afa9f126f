"""Makes topics that clients can use immediately."""

from __future__ import annotations

from typing import Any

from tests.waiting import PATIENCE_SECONDS, wait_until


def create_topic(admin: Any, name: str, partitions: int, *, replicas: int = 1, **settings: Any) -> None:
    """Create the topic, and wait until the broker names a leader of each partition.

    (Without ZooKeeper the controller answers before the broker knows the topic.) `settings` are those of `NewTopic`.
    """
    from confluent_kafka.admin import NewTopic

    admin.create_topics([NewTopic(name, partitions, replicas, **settings)])[name].result(PATIENCE_SECONDS)
    await_partitions(admin, name, partitions)


def await_partitions(admin: Any, name: str, partitions: int) -> None:
    """Wait until the broker names a leader of each of this number of partitions."""

    def known() -> bool:
        topic = admin.list_topics(timeout=PATIENCE_SECONDS).topics.get(name)
        return topic is not None and [p.leader >= 0 for p in topic.partitions.values()] == [True] * partitions

    wait_until(known, f"the broker knows {name}")


def await_replicas(admin: Any, name: str, replicas: int) -> None:
    """Wait until each partition of the topic has a leader, and this number of replicas in sync."""

    def in_sync() -> bool:
        topic = admin.list_topics(timeout=PATIENCE_SECONDS).topics.get(name)
        found = () if topic is None else topic.partitions.values()
        return bool(found) and all(p.leader >= 0 and len(p.isrs) == replicas for p in found)

    wait_until(in_sync, f"the replicas of {name} are in sync")
