"""zkcoord's own clients on brokers of other versions: the plain consumer, and both of Spark's readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Topic
from tests.spark.fakes import World
from tests.spark.played import consumer_of
from tests.spark.together import ON_REAL_SERVERS, coordinating
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.kafka.consumer import KafkaConsumer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zkcoord.spark import Batch

pytestmark = [*ON_REAL_SERVERS, pytest.mark.legacy, pytest.mark.long]

VERSIONS = ("0.10.2.2", "0.11.0.2", "1.1.1", "2.8.2", "3.9.1")
COUNTS = {0: 25, 1: 3}


@pytest.fixture(scope="module", params=VERSIONS)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedKafka]]:
    """A ZooKeeper, and a broker of this version."""
    with (
        EmbeddedZooKeeper(fsync=False) as zookeeper,
        EmbeddedKafka(zookeeper.hosts, version=request.param, heap="256m") as kafka,
    ):
        yield zookeeper.hosts, kafka


def filled(kafka: EmbeddedKafka) -> Topic:
    """A topic of the test's own with all records in it."""
    topic = Topic(kafka.bootstrap_servers, len(COUNTS))
    for partition, count in COUNTS.items():
        topic.fill(partition, count)
    return topic


def test_the_plain_consumer_reads_every_record_and_commits(servers: tuple[str, EmbeddedKafka]) -> None:
    zookeeper, kafka = servers
    topic = filled(kafka)
    seen: set[tuple[int, int]] = set()
    with (
        coordinating(zookeeper),
        KafkaConsumer(zookeeper, kafka.bootstrap_servers, "plain", [topic.name], from_beginning=True) as consumer,
    ):

        def all_seen() -> bool:
            message = consumer.poll(0.2)
            if message is not None:
                seen.add((message.partition(), message.offset()))
            return len(seen) == sum(COUNTS.values())

        wait_until(all_seen, "it reads every record")
        consumer.poll(0)
        consumer.commit()
    assert seen == {(partition, offset) for partition, count in COUNTS.items() for offset in range(count)}


@pytest.mark.parametrize("reader", ["kafka", "python"])
def test_spark_reads_every_record(
    world: World, spark: SparkSession, servers: tuple[str, EmbeddedKafka], reader: str
) -> None:
    topic = filled(servers[1])
    world.given = {TopicPartition(topic.name, partition): 0 for partition in COUNTS}
    found: list[Any] = []

    def process(df: DataFrame, batch: Batch) -> None:
        found.extend((row.partition, row.offset, bytes(row.value)) for row in df.collect())

    assert consumer_of(world, spark, topic, reader=reader).run(process, idle_timeout_ms=0) == 1
    assert sorted(found) == [(p, n, b"value-%d" % n) for p, count in COUNTS.items() for n in range(count)]
    assert world.final == {TopicPartition(topic.name, partition): count for partition, count in COUNTS.items()}
