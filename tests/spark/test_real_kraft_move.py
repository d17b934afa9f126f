"""The move to KRaft and to Kafka 4, finished or given up, while a group reads on: no record is lost, none is read
twice.

Two consumers without Spark and one with it share the group.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.kraft_flow import PARTITIONS, Flow
from tests.integration.kraft_phases import Readers, called, end, follow, grow, run, stopped, switch_topics
from tests.integration.kraft_scene import KRaftMove
from tests.spark.fakes import InThread
from tests.spark.together import ON_REAL_SERVERS, Seen
from zkcoord.embedded.kafka_tools import kafka_tool
from zkcoord.spark import SparkConsumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*ON_REAL_SERVERS, pytest.mark.long]

GROWN = PARTITIONS + 2


class SparkReader:
    """A member of the group that reads with Spark, until it is told to leave."""

    def __init__(self, spark: SparkSession, scene: KRaftMove) -> None:
        self._seen = Seen()
        self._consumer = SparkConsumer(
            *(spark, scene.zookeeper, scene.servers, scene.group, [scene.topic]),
            starting_offsets="earliest",
            session_timeout_ms=6_000,
        )
        self._running = InThread(lambda: self._consumer.run(self._seen.process_as("spark")))
        scene.at_end(self.leave)

    def offsets(self, number: int) -> list[int]:
        """Return the offsets that it has read of a partition; an offset that was read twice is there twice."""
        assert self._running.error is None, self._running.error
        return [
            offset
            for (partition, offset), count in list(self._seen.records.items())
            for _ in range(count)
            if partition == number
        ]

    def leave(self) -> None:
        """Leave cleanly."""
        self._consumer.stop()
        self._running.result()


def join(scene: KRaftMove, spark: SparkSession) -> Readers:
    """Start two plain consumers and one with Spark, and wait until each reads."""
    readers: Readers = [scene.reader(), scene.reader(), SparkReader(spark, scene)]
    scene.await_settled(len(readers))
    return readers


def features(scene: KRaftMove) -> str:
    """Return the line of `kafka-features describe` about the metadata's version."""
    told = kafka_tool("kafka-features", "--bootstrap-server", scene.servers, "describe")
    return next(line for line in told.splitlines() if "metadata.version" in line)


def rehearse(scene: KRaftMove, flow: Flow, readers: Readers) -> None:
    """Go to the last step of the move that can be undone, and back."""
    scene.migrate()
    follow(flow, readers, "both write to ZooKeeper")
    scene.kraft_mode()
    follow(flow, readers, "the brokers are in KRaft mode")
    scene.give_up()
    follow(flow, readers, "all is as before")


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_group_reads_on_through_the_move_to_kraft_kafka_4_and_its_own_ensemble(
    spark: SparkSession, tmp_path: Path, brokers: int
) -> None:
    """With one broker nothing is read while it is away. With three brokers all partitions are read while any one is
    away.
    """
    with KRaftMove(tmp_path, brokers) as scene:
        coordinator = scene.coordinator()
        flow = scene.flow()
        readers = join(scene, spark)
        scene.reports.seen.clear()
        if brokers > 1:
            scene.while_away = lambda number: follow(flow, readers, f"all is read while broker {number} is away")

        rehearse(scene, flow, readers)
        scene.migrate()
        scene.kraft_mode()
        follow(flow, readers, "the brokers are in KRaft mode again")
        coordinator = switch_topics(scene, coordinator)
        follow(flow, readers, "topics come from Kafka")

        scene.finish()
        scene.remove("/brokers", "/controller", "/migration")
        grow(scene, flow, readers, GROWN)
        assert "FinalizedVersionLevel: 3.9" in features(scene)
        scene.to_kafka_4()
        kafka_tool("kafka-features", "--bootstrap-server", scene.servers, "upgrade", "--release-version", "4.1")
        assert "FinalizedVersionLevel: 4.1" in features(scene)
        follow(flow, readers, "Kafka 4 is read")
        assert stopped(scene) == []  # each partition was its reader's all the time

        before = readers
        old, scene.zookeeper = scene.zookeeper, scene.another_ensemble()
        where = ("--zookeeper", old, "--bootstrap-servers", scene.servers)
        run("migrate", "move", "--to", scene.zookeeper, *where)
        assert stopped(scene)
        for reader in before:
            reader.leave()
        coordinator.stop()
        scene.old.stop()  # the ensemble of the brokers is switched off
        scene.coordinator(topics="kafka", bootstrap_servers=scene.servers)
        readers = [*before, *join(scene, spark)]
        follow(flow, readers, "coordination is in the new ensemble")
        end(flow, readers)


@pytest.mark.parametrize("brokers", [1, 3])
def test_f232_a_move_that_is_given_up_after_topics_came_from_kafka_ends_where_it_began(
    spark: SparkSession, tmp_path: Path, brokers: int
) -> None:
    with KRaftMove(tmp_path, brokers) as scene:
        coordinator = scene.coordinator()
        flow = scene.flow()
        readers = join(scene, spark)
        scene.reports.seen.clear()
        if brokers > 1:
            scene.while_away = lambda number: follow(flow, readers, f"all is read while broker {number} is away")
        scene.migrate()
        scene.kraft_mode()
        coordinator = switch_topics(scene, coordinator)
        follow(flow, readers, "topics come from Kafka")
        where = ("--zookeeper", scene.zookeeper, "--bootstrap-servers", scene.servers)
        assert "/brokers/ids" in called("migrate", "topics", "--to", "zookeeper", *where)  # none is registered

        scene.give_up()
        follow(flow, readers, "brokers are in ZooKeeper mode, and topics come from Kafka")
        grow(scene, flow, readers, PARTITIONS + 1)
        switch_topics(scene, coordinator, "zookeeper")
        follow(flow, readers, "topics come from ZooKeeper")
        grow(scene, flow, readers, GROWN)
        assert stopped(scene) == []  # each partition was its reader's all the time
        end(flow, readers)
