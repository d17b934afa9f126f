"""A real broker in ZooKeeper mode: topics come from its metadata under a running group, and from its nodes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.integration.test_topics_kafka import GROUP, TOPIC, Broker, read
from tests.kafka.helpers import PATIENCE_SECONDS
from tests.waiting import wait_until
from zkcoord.cli.main import cli
from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.errors import SchemaError
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.metadata import KafkaMetadata
from zkcoord.tree.paths import DRAFT, layout_named
from zkcoord.tree.snapshot import Read
from zkcoord.tree.state import decode_state
from zkcoord.tree.topic import decode_mark, decode_topic

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

MIRRORED = layout_named("draft", "kafka")


@contextmanager
def serving(coordinator: Coordinator) -> Iterator[Coordinator]:
    coordinator.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()


class Tool:
    """The command line, and what stands in the tree."""

    def __init__(self, broker: Broker, zookeeper: str) -> None:
        self.broker, self.zookeeper = broker, zookeeper

    def switch(self, goal: str, *more: str) -> tuple[int, str]:
        where = ["--zookeeper", self.zookeeper, "--bootstrap-servers", self.broker.servers]
        done = CliRunner().invoke(cli, ["migrate", "topics", "--to", goal, *more, *where])
        return done.exit_code, done.output

    def generation(self) -> int:
        return decode_state(self.broker.tree.read([Read(DRAFT.state(GROUP))])[0].data).generation

    def incarnation(self) -> tuple[int, str | None]:
        mark = decode_mark(self.broker.tree.read([Read(DRAFT.mark(GROUP, TOPIC))])[0].data)
        assert mark is not None
        return mark.incarnation, mark.topic_id

    def mirrored(self, topic: str) -> tuple[int, ...]:
        return decode_topic(self.broker.tree.read([Read(MIRRORED.topic(topic))])[0].data).partitions


def test_the_source_is_switched_under_a_running_group_and_back_and_nothing_is_dropped() -> None:
    with EmbeddedZooKeeper(fsync=False) as zookeeper, EmbeddedKafka(zookeeper.hosts) as kafka:
        servers = kafka.bootstrap_servers
        broker = Broker(zookeeper.hosts, servers)
        tool = Tool(broker, zookeeper.hosts)
        broker.create(2)
        with serving(Coordinator(zookeeper.hosts)) as before:
            consumer = KafkaConsumer(zookeeper.hosts, servers, GROUP, [TOPIC], from_beginning=True)
            first = broker.write("first", 2, 10)
            assert read(consumer, len(first)) == first
            consumer.commit()
            generation, incarnation = tool.generation(), tool.incarnation()
            code, text = tool.switch("kafka")
            assert (code, "zkcoord migrate upgrade" in text) == (2, True), text
            CliRunner().invoke(cli, ["migrate", "upgrade", "--zookeeper", zookeeper.hosts], catch_exceptions=False)
            code, text = tool.switch("kafka", "--dry-run")
            assert (code, "set    /zkcoord/schema" in text) == (0, True), text
            code, text = tool.switch("kafka")
            assert (code, "--topics kafka" in text) == (0, True), text
            wait_until(lambda: before.error is not None, "the coordinator of the other source ends")
            assert isinstance(before.error, SchemaError)
            assert "--topics kafka --bootstrap-servers" in str(before.error)
        unmanaged = broker.write("unmanaged", 2, 5)
        assert read(consumer, len(unmanaged)) == unmanaged
        with serving(Coordinator(zookeeper.hosts, topics="kafka", bootstrap_servers=servers)):
            changes(broker, tool, consumer, generation, incarnation)
            code, text = tool.switch("zookeeper")
            assert (code, "--topics zookeeper" in text) == (0, True), text
        generation, incarnation = tool.generation(), tool.incarnation()
        with serving(Coordinator(zookeeper.hosts)), consumer:
            last = broker.write("last", 2, 10)
            read_all(consumer, last)  # repeats of the new topic's records may stand before them
            wait_until(lambda: tool.incarnation() == incarnation, "the mark is as it was")
            assert tool.generation() == generation
        broker.tree.close()


def read_all(consumer: KafkaConsumer, wanted: list[str]) -> None:
    """Read until each of these was read at least once."""
    missing = set(wanted)

    def nothing_is_missing() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            missing.discard((message.value() or b"").decode())
        return not missing

    wait_until(nothing_is_missing, f"{len(wanted)} records are read")


def changes(
    broker: Broker, tool: Tool, consumer: KafkaConsumer, generation: int, incarnation: tuple[int, str | None]
) -> None:
    """With topics from the metadata a topic grows, another comes and goes, and one is created again."""
    more = broker.write("more", 2, 5)
    assert read(consumer, len(more)) == more
    assert (tool.generation(), tool.incarnation()) == (generation, incarnation)
    broker.admin.create_partitions([NewPartitions(TOPIC, 4)])[TOPIC].result(PATIENCE_SECONDS)
    wait_until(lambda: len(consumer.assignment()) == 4, "the new partitions are read")
    broker.admin.create_topics([NewTopic("other", 3)])["other"].result(PATIENCE_SECONDS)
    wait_until(lambda: tool.mirrored("other") == (0, 1, 2), "another topic is mirrored")
    broker.admin.delete_topics(["other"])["other"].result(PATIENCE_SECONDS)
    wait_until(lambda: tool.mirrored("other") == (), "a deleted one is not")
    broker.delete()
    broker.create(2)
    new = broker.write("new", 2, 40)
    read_all(consumer, new)  # until the other id is confirmed from the earlier offsets, then from its beginning
    wait_until(lambda: tool.incarnation()[0] == 2, "it is known by its id")
    consumer.commit()
    assert tool.incarnation()[0] == 2
    assert tool.incarnation()[1] != incarnation[1]


def test_metadata_tells_the_same_of_a_topic_as_the_brokers_nodes() -> None:
    with EmbeddedZooKeeper(fsync=False) as zookeeper, EmbeddedKafka(zookeeper.hosts) as kafka:
        broker = Broker(zookeeper.hosts, kafka.bootstrap_servers)
        broker.create(3)
        with KafkaMetadata(kafka.bootstrap_servers) as metadata:
            cluster, nameless = metadata.whole()
        (node,) = broker.tree.read([Read(DRAFT.topic(TOPIC))])
        info = decode_topic(node.data)
        assert (cluster.topics[TOPIC].topic_id, tuple(cluster.topics[TOPIC].partitions), nameless) == (
            info.topic_id,
            info.partitions,
            (),
        )
        broker.tree.close()
