"""A topic that a real broker deletes and creates again: its consumer reads the new one from its beginning."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.waiting import wait_until
from zkcoord import TopicPartition
from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.snapshot import Read
from zkcoord.tree.topic import decode_mark

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

TOPIC, GROUP = "clicks", "g"


class Broker:
    """The broker as its administrator and producers see it, and the tree below it."""

    def __init__(self, zookeeper: str, servers: str) -> None:
        self.tree = Tree(zookeeper)
        self.admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
        self.servers = servers

    def create(self, partitions: int) -> None:
        """Create the topic, and wait until the broker has done so."""
        self.admin.create_topics([NewTopic(TOPIC, partitions)])[TOPIC].result(PATIENCE_SECONDS)

    def delete(self) -> None:
        """Delete the topic, and wait until its node is gone, and then the mark that forbids to create it again."""
        self.admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_SECONDS)
        nodes = [Read(f"{TOPICS}/{TOPIC}"), Read(f"/admin/delete_topics/{TOPIC}")]
        wait_until(lambda: not any(node.exists for node in self.tree.read(nodes)), "the topic is deleted")

    def write(self, word: str, partitions: int, count: int) -> list[str]:
        """Write so many records into each partition."""
        producer = Producer({"bootstrap.servers": self.servers}, logger=QUIET)
        values = [(p, f"{word}-{p}-{n}") for p in range(partitions) for n in range(count)]
        for partition, value in values:
            producer.produce(TOPIC, value.encode(), partition=partition)
        producer.flush(PATIENCE_SECONDS)
        return sorted(value for _, value in values)


def read(consumer: KafkaConsumer, count: int) -> list[str]:
    """So many records, sorted."""
    found: list[str] = []
    for _ in range(int(PATIENCE_SECONDS / 0.2)):
        message = consumer.poll(0.2)
        if message is not None:
            found.append((message.value() or b"").decode())
        if len(found) == count:
            return sorted(found)
    return sorted(found)


def test_f32_a_topic_created_again_with_fewer_partitions_is_read_from_its_beginning() -> None:
    with EmbeddedZooKeeper(fsync=False) as zookeeper, EmbeddedKafka(zookeeper.hosts) as kafka:
        broker = Broker(zookeeper.hosts, kafka.bootstrap_servers)
        coordinator = Coordinator(zookeeper.hosts)
        coordinator.start()
        try:
            broker.create(4)
            old = broker.write("old", 4, 10)
            consumer = KafkaConsumer(zookeeper.hosts, kafka.bootstrap_servers, GROUP, [TOPIC], from_beginning=True)
            with consumer:
                assert read(consumer, len(old)) == old
                consumer.commit()
                broker.delete()
                broker.create(2)
                new = broker.write("new", 2, 20)  # beyond the old offsets: these would be valid in the new log
                assert read(consumer, len(new)) == new
                consumer.commit()
                assert {p.partition for p in consumer.assignment()} == {0, 1}
            nodes = broker.tree.read([Read(DRAFT.offset(GROUP, TopicPartition(TOPIC, n))) for n in range(4)])
            assert [node.data for node in nodes] == [b"20", b"20", b"", b""]
            mark = decode_mark(broker.tree.read([Read(DRAFT.mark(GROUP, TOPIC))])[0].data)
            assert mark is not None and mark.incarnation == 2
        finally:
            coordinator.stop()
            broker.tree.close()
