"""A topic that Kafka 4 deletes and creates again between two questions for its topics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.test_topics_kafka import GROUP, TOPIC, Broker, read
from tests.integration.test_topics_source import read_all, serving
from tests.kafka.helpers import PATIENCE_SECONDS
from tests.waiting import wait_until
from zkcoord import TopicPartition
from zkcoord.coordinator import Coordinator
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read
from zkcoord.tree.topic import decode_mark

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

INTERVAL_MS = 1_500  # long enough to delete and to create in


def test_f153_a_smaller_topic_that_kafka_4_recreates_at_once_is_read_from_its_beginning(
    chroot: str, brokers: Callable[[str], KafkaBroker]
) -> None:
    servers = brokers(KAFKA_4_VERSION).bootstrap_servers
    broker = Broker(chroot, servers)
    broker.create(4)
    old = broker.write("old", 4, 10)
    coordinator = Coordinator(chroot, topics="kafka", bootstrap_servers=servers, topics_interval_ms=INTERVAL_MS)

    def incarnation() -> int:
        (node,) = broker.tree.read([Read(DRAFT.mark(GROUP, TOPIC))])
        mark = decode_mark(node.data) if node.exists else None
        return 0 if mark is None else mark.incarnation

    with serving(coordinator), KafkaConsumer(chroot, servers, GROUP, [TOPIC], from_beginning=True) as consumer:
        assert read(consumer, len(old)) == old
        consumer.commit()
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_SECONDS)
        wait_until(lambda: created(admin), "the topic is created again")
        read_all(consumer, broker.write("new", 2, 20))  # some of them twice, perhaps: before its id is confirmed

        def known() -> bool:
            consumer.poll(0.1)
            return incarnation() == 2 and {p.partition for p in consumer.assignment()} == {0, 1}

        wait_until(known, "it is known by its id")
        read_all(consumer, broker.write("more", 2, 5))
        consumer.commit()
        paths = [Read(DRAFT.offset(GROUP, TopicPartition(TOPIC, n))) for n in range(4)]
        assert [node.data for node in broker.tree.read(paths)] == [b"25", b"25", b"", b""]
    broker.admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_SECONDS)
    broker.tree.close()


def created(admin: AdminClient) -> bool:
    """True once the broker creates it, which it does when its deletion is through."""
    try:
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(PATIENCE_SECONDS)
    except Exception as error:
        assert "TOPIC_ALREADY_EXISTS" in str(error), error
        return False
    return True
