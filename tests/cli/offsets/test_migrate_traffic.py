"""A group of real consumers is moved from ZooKeeper to Kafka and back while it reads: nothing is lost or read twice."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from tests.cli.program import Run
from tests.integration.test_kafka_consumer import PARTITIONS, Reader, World, servers, share, start
from tests.integration.test_kafka_consumer import world as traffic
from tests.kafka.helpers import PATIENCE_SECONDS
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits

__all__ = ["servers", "traffic"]  # fixtures

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]


def in_kafka(world: World) -> dict[int, int]:
    """The group's commits in Kafka."""
    with KafkaClient(world.bootstrap_servers) as client:
        found = KafkaCommits(client).read([world.group]).found[world.group]
    return {p: found[TopicPartition(world.topic, p)].offset for p in range(PARTITIONS)}


def test_a_group_that_reads_is_moved_to_kafka_and_back_while_members_join_and_leave(traffic: World, run: Run) -> None:
    world = traffic

    def move(goal: str) -> str:
        words = ("--zookeeper", world.zookeeper, "--bootstrap-servers", world.bootstrap_servers)
        result = run("offsets", "migrate", world.group, "--to", goal, *words)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    written: dict[int, int] = {}
    producer = threading.Thread(target=lambda: written.update(world.produce()))
    producer.start()
    with ExitStack() as stack:
        stack.callback(producer.join, PATIENCE_SECONDS)
        stack.callback(world.enough.set)
        first, second = (start(stack, Reader(world, name)) for name in ("first", "second"))
        wait_until(share([first, second]), "two share")
        wait_until(lambda: min(world.by["first"], world.by["second"]) > 100, "both read")
        assert "moved" in move("kafka")
        before = in_kafka(world)
        wait_until(lambda: all(offset > before[p] for p, offset in in_kafka(world).items()), "they commit to Kafka")
        third = start(stack, Reader(world, "third"))
        wait_until(share([first, second, third]), "three share")
        wait_until(lambda: world.by["third"] > 100, "the third reads")
        first.leave.set()
        wait_until(share([second, third]), "two share again")
        assert "moved" in move("zookeeper")
        world.enough.set()
        producer.join(PATIENCE_SECONDS)
        wait_until(lambda: all(len(world.seen[p]) >= count for p, count in written.items()), "all is read")
    assert world.seen == {partition: list(range(count)) for partition, count in written.items()}
    assert world.stored() == written
    assert [reader.fenced for reader in (first, second, third)] == [[], [], []]
