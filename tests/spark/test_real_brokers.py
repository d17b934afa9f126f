"""PySpark consumers in a real group on brokers of other versions, with both readers, and each store of offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.integration.test_old_brokers import STORES, VERSIONS
from tests.spark.conftest import Topic
from tests.spark.streams import Stream
from tests.spark.test_real_stores import in_kafka, keep_in
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, Seen, coordinating
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.shell.zk.blocking import Tree
from zkcoord.spark import SparkConsumer
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*ON_REAL_SERVERS, pytest.mark.legacy, pytest.mark.long]

COUNTS = {0: 25, 1: 3}
MORE = 4
PHASES = (COUNTS, COUNTS), ({0: COUNTS[0] + MORE, 1: COUNTS[1]}, {0: MORE})  # all there is, and what is new of it
GROUPS = (f"spark-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module", params=VERSIONS)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedKafka]]:
    """A ZooKeeper with a coordinator, and a broker of this version."""
    with (
        EmbeddedZooKeeper(fsync=False) as zookeeper,
        EmbeddedKafka(zookeeper.hosts, version=request.param, heap="256m") as kafka,
        coordinating(zookeeper.hosts),
    ):
        yield zookeeper.hosts, kafka


def nodes(zookeeper: str, group: str, topic: Topic) -> dict[int, int]:
    """The offsets in ZooKeeper."""
    with Tree(zookeeper) as tree:
        read = tree.read([Read(DRAFT.offset(group, TopicPartition(topic.name, number))) for number in COUNTS])
    return {number: int(node.data) for number, node in zip(COUNTS, read, strict=True) if node.data}


def committed(
    commits: KafkaCommits, zookeeper: str, group: str, topic: Topic, store: str, ends: Mapping[int, int]
) -> bool:
    """True once these offsets stand in each store that is in use, and in no other."""
    in_zookeeper, told = nodes(zookeeper, group, topic), in_kafka(commits, group)
    return told == ({} if store == "zookeeper" else ends) and (store == "kafka" or in_zookeeper == ends)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("reader", ["kafka", "python"])
def test_spark_reads_every_record_once_commits_and_goes_on_there(
    spark: SparkSession, servers: tuple[str, EmbeddedKafka], reader: Literal["kafka", "python"], store: str
) -> None:
    (zookeeper, kafka), group, seen = servers, next(GROUPS), Seen()
    topic = Topic(kafka, len(COUNTS))
    if store != "zookeeper":
        keep_in(zookeeper, group, store)
    with KafkaClient(kafka.bootstrap_servers) as client:
        shown = KafkaCommits(client), zookeeper, group, topic, store
        for ends, new in PHASES:
            for partition, count in new.items():
                topic.fill(partition, count)

            def has_read(total: int = sum(ends.values())) -> bool:
                """On a busy machine the time may end before it has been given all: then another one goes on."""
                consumer = SparkConsumer(
                    *(spark, zookeeper, kafka.bootstrap_servers, group, [topic.name]),
                    starting_offsets="earliest",
                    session_timeout_ms=6_000,
                    reader=reader,
                )
                consumer.run(seen.process_as("a"), idle_timeout_ms=3_000)
                return len(seen.records) >= total

            wait_until(has_read, f"{ends} is read")
            assert seen.records == dict.fromkeys(((p, n) for p, end in ends.items() for n in range(end)), 1)
            wait_until(partial(committed, *shown, ends), f"{store} has {ends}")


@pytest.mark.parametrize("store", STORES)
def test_a_streaming_query_reads_every_record_once_commits_and_another_one_goes_on_there(
    spark: SparkSession, servers: tuple[str, EmbeddedKafka], store: str, tmp_path: Path
) -> None:
    """The second query has a checkpoint of its own, and reads with Spark's connector."""
    zookeeper, kafka = servers
    topic = Topic(kafka, len(COUNTS))
    stream = Stream(spark, zookeeper, topic)
    if store != "zookeeper":
        keep_in(zookeeper, stream.group, store)
    with KafkaClient(kafka.bootstrap_servers) as client:
        shown = KafkaCommits(client), zookeeper, stream.group, topic, store
        for (ends, new), stream.of_ranges in zip(PHASES, (False, True), strict=True):
            for partition, count in new.items():
                topic.fill(partition, count)
            query = stream.start(f"of ranges: {stream.of_ranges}", tmp_path / str(stream.of_ranges))
            stream.wait_for(lambda ends=ends: len(stream.records) == sum(ends.values()), query)  # type: ignore[misc]
            wait_until(partial(committed, *shown, ends), f"{store} has {ends}", DEADLINE_S)
            query.stop()
            assert stream.records == dict.fromkeys(((p, n) for p, end in ends.items() for n in range(end)), 1)
