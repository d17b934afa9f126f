"""Spark consumers as members of a real group: coordinator, ZooKeeper, Kafka and Spark are all real."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.integration.world import World as Tree
from tests.spark.fakes import InThread
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, Seen, coordinating
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.spark import Batch, SparkConsumer
from zkcoord.tree.paths import DRAFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS


def test_a_consumer_cut_off_from_zookeeper_drops_its_batch_and_comes_back(
    spark: SparkSession, make_topic: Callable[[int], Topic]
) -> None:
    topic = make_topic(2)
    topic.fill(0, 20)
    seen = Seen()
    process = seen.process_as("a")
    cut, lost = threading.Event(), threading.Event()

    def hang_once(df: DataFrame, batch: Batch) -> None:
        if cut.is_set():
            process(df, batch)
            return
        cut.set()
        try:
            df.crossJoin(spark.range(10**13)).selectExpr("hash(value, id) as h").where("h = 1").count()
        finally:
            lost.set()

    with EmbeddedZooKeeper(fsync=False) as zookeeper, coordinating(zookeeper.hosts, **topic.source):
        topic.show_in(zookeeper.hosts)
        consumer = SparkConsumer(
            *(spark, zookeeper.hosts, topic.bootstrap_servers, "g", [topic.name]),
            starting_offsets="earliest",
            session_timeout_ms=4_000,
        )
        running = InThread(lambda: consumer.run(hang_once))
        assert cut.wait(DEADLINE_S)
        zookeeper.pause()
        assert lost.wait(DEADLINE_S), "the batch runs on without a lease"
        zookeeper.resume()
        seen.wait_for(lambda: len(seen.records) == 20)
        consumer.stop()
        assert running.result() == 1
    assert set(seen.records.values()) == {1}


def test_records_are_read_once_each_while_consumers_come_and_go(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str
) -> None:
    topic = make_topic(4)
    topic.show_in(chroot)
    seen = Seen()
    made: dict[str, SparkConsumer] = {}
    running: dict[str, InThread] = {}
    group = f"g-{uuid.uuid4().hex[:8]}"

    def join(name: str) -> None:
        made[name] = SparkConsumer(
            spark,
            chroot,
            topic.bootstrap_servers,
            group,
            [topic.name],
            starting_offsets="earliest",
            instance=name,
            session_timeout_ms=6_000,
        )
        running[name] = InThread(lambda: made[name].run(seen.process_as(name)))

    def fill(count: int) -> None:
        for partition in range(4):
            topic.fill(partition, count)

    with coordinating(chroot, **topic.source):
        fill(50)
        join("a")
        seen.wait_for(lambda: len(seen.records) == 200)
        join("b")
        for count in range(1, 200):
            fill(10)
            seen.wait_for(lambda count=count: len(seen.records) == 200 + 40 * count)
            if len(seen.by.get("b", ())) == 2:  # they are handed over one by one
                break
        assert len(seen.by["b"]) == 2
        made["a"].stop()
        running["a"].result()
        fill(10)
        seen.wait_for(lambda: len(seen.by["b"]) == 4 and len(seen.records) == 240 + 40 * count)
        made["b"].stop()
        assert running["b"].result() >= 2
    assert set(seen.records.values()) == {1}, "a record came twice"


def test_partitions_and_topics_of_a_wildcard_that_come_later_are_read_from_their_beginning(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str
) -> None:
    first, later, foreign = (make_topic(1) for _ in range(3))
    seen: Counter[tuple[str, int, int]] = Counter()
    changed = threading.Condition()

    def process(df: DataFrame, batch: Batch) -> None:
        rows = df.select("topic", "partition", "offset").collect()
        with changed:
            seen.update((row.topic, row.partition, row.offset) for row in rows)
            changed.notify_all()

    def await_records(*partitions: tuple[Topic, int]) -> None:
        expected = {(topic.name, partition, offset): 1 for topic, partition in partitions for offset in range(5)}
        with changed:
            assert changed.wait_for(lambda: seen == expected, DEADLINE_S), seen

    with coordinating(chroot, **first.source):
        consumer = SparkConsumer(
            *(spark, chroot, first.bootstrap_servers, "g"),
            include=f"{first.name}, {later.name}",
            starting_offsets="earliest",
        )
        for topic in (foreign, first):
            topic.fill(0, 5)
            topic.show_in(chroot)
        running = InThread(lambda: consumer.run(process))
        await_records((first, 0))
        first.grow(2)
        first.show_in(chroot)
        first.fill(1, 5)
        await_records((first, 0), (first, 1))
        later.fill(0, 5)
        later.show_in(chroot)
        await_records((first, 0), (first, 1), (later, 0))
        consumer.stop()
        running.result()


def test_a_topic_without_offsets_is_read_from_where_its_own_policy_says(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str
) -> None:
    old, since, new = topics = [make_topic(1) for _ in range(3)]
    now = datetime.now(UTC)
    for topic in topics:
        topic.fill(0, 6, times=[now - timedelta(hours=hours) for hours in range(6, 0, -1)])
        topic.show_in(chroot)
    seen: list[tuple[str, int]] = []
    done = threading.Event()

    def process(df: DataFrame, batch: Batch) -> None:
        seen.extend((row.topic, row.offset) for row in df.select("topic", "offset").collect())
        if len(seen) == 6 + 3 + 0 + 3 * 2:
            done.set()

    def offsets() -> list[bytes]:
        return [world.data(DRAFT.offset("g", TopicPartition(topic.name, 0))) for topic in topics]

    with Tree(chroot) as world:
        world.coordinate(**old.source)
        consumer = SparkConsumer(
            *(spark, chroot, old.bootstrap_servers, "g", [topic.name for topic in topics]),
            starting_offsets={
                old.name: "earliest",
                since.name: now - timedelta(hours=3, minutes=30),
                "*": "latest",
            },
        )
        running = InThread(lambda: consumer.run(process))
        wait_until(lambda: all(offsets()), "all are started")
        for topic in topics:
            topic.fill(0, 2)
        assert done.wait(DEADLINE_S), seen
        consumer.stop()
        running.result()
        assert offsets() == [b"8"] * 3
    first = {old.name: 0, since.name: 3, new.name: 6}
    assert sorted(seen) == sorted((name, offset) for name in first for offset in range(first[name], 8))


def test_of_a_stop_the_next_reads_at_once_what_the_running_batch_does_not_read(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str
) -> None:
    topic = make_topic(4)
    topic.show_in(chroot)
    topic.fill(0, 20)
    partitions = [TopicPartition(topic.name, number) for number in range(4)]
    begun, go_on = threading.Event(), threading.Event()

    def work(df: DataFrame, batch: Batch) -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        assert df.count() == 20

    def owners() -> list[str]:
        """The instances' names."""
        owned = [consumer_of(world.data(DRAFT.owner("g", each)).decode()) for each in partitions]
        return [each.removeprefix("g_").partition("-")[0] for each in owned]

    with Tree(chroot) as world:
        world.coordinate(**topic.source)
        consumer = SparkConsumer(
            *(spark, chroot, topic.bootstrap_servers, "g", [topic.name]),
            starting_offsets="earliest",
            instance="spark",
            assignors=("range",),
        )
        running = InThread(lambda: consumer.run(work))
        assert begun.wait(DEADLINE_S)
        wait_until(lambda: owners() == ["spark"] * 4, "it owns all")
        heir = world.join("g", topic.name, instance="heir", assignors=("range",))  # its id comes first: 0 and 1
        wait_until(lambda: heir.held() == [str(partitions[1])], "the heir reads one while the batch runs")
        assert owners() == ["spark", "heir", "spark", "spark"]
        go_on.set()
        wait_until(lambda: heir.held() == list(map(str, partitions[:2])), "and the other one with the batch's end")
        assert heir.begun == {partitions[0]: 20, partitions[1]: 0}
        consumer.stop()
        assert running.result() == 1
