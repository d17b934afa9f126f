"""Spark consumers and queries in groups with offsets in Kafka, too. All servers and Spark are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.streams import Stream
from tests.spark.together import ON_REAL_SERVERS, Seen, coordinating
from tests.waiting import wait_until
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.operating.requesting import edit_record
from zkcoord.shell.zk.blocking import Tree
from zkcoord.spark import SparkConsumer
from zkcoord.tree.paths import DRAFT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS
IN_KAFKA = pytest.mark.parametrize("store", ["dual", "kafka"])


def keep_in(zookeeper: str, group: str, store: str) -> None:
    """Write the store into the group's record before any member joins."""
    with Tree(zookeeper) as tree:
        edit_record(tree, DRAFT, group, lambda record: replace(record, store_name=store, store_step=1), new=True)


@pytest.fixture
def commits(make_topic: Callable[[int], Topic]) -> Iterator[KafkaCommits]:
    with KafkaClient(make_topic(1).bootstrap_servers) as client:
        yield KafkaCommits(client)


def in_kafka(commits: KafkaCommits, group: str) -> dict[int, int]:
    """Return the offsets in Kafka that zkcoord has committed."""
    found = commits.read([group]).found.get(group, {})
    return {partition.partition: commit.offset for partition, commit in found.items() if commit.stamp is not None}


@IN_KAFKA
def test_a_spark_consumer_commits_its_batches_to_kafka_and_goes_on_there(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str, commits: KafkaCommits, store: str
) -> None:
    topic, seen = make_topic(2), Seen()
    topic.show_in(chroot)
    topic.fill(0, 20)
    topic.fill(1, 10)
    with coordinating(chroot, **topic.source):
        keep_in(chroot, "g", store)
        for total in (30, 37):

            def has_read(total: int = total) -> bool:
                """On a busy machine the time may end before it has been given all: then another one goes on."""
                consumer = SparkConsumer(
                    *(spark, chroot, topic.bootstrap_servers, "g", [topic.name]),
                    starting_offsets="earliest",
                    session_timeout_ms=6_000,
                )
                consumer.run(seen.process_as("a"), idle_timeout_ms=3_000)
                return len(seen.records) >= total

            wait_until(has_read, f"{total} records are read")
            assert len(seen.records) == total
            topic.fill(0, 7)
        wait_until(lambda: in_kafka(commits, "g") == {0: 27, 1: 10}, "Kafka has all")
    assert set(seen.records.values()) == {1}


@IN_KAFKA
def test_a_query_commits_to_kafka_what_is_complete(
    stream: Stream, tmp_path: Path, commits: KafkaCommits, store: str
) -> None:
    keep_in(stream.zookeeper, stream.group, store)
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 10)
    query = stream.start("a", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 30, query)
    wait_until(lambda: in_kafka(commits, stream.group) == {0: 20, 1: 10}, "Kafka has all")
    query.stop()
    stream.topic.fill(0, 5)
    again = stream.start("b", tmp_path / "another")
    stream.wait_for(lambda: len(stream.records) == 35, again)
    again.stop()
    assert set(stream.records.values()) == {1}
