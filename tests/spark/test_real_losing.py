"""Real Spark consumers lose partitions, sessions or servers in the middle of a batch, and recover within one `run`.

In each case only processed records are committed, and no record is lost. Nothing has to be started again, except after
the death of a task in local mode, as always with Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.world import World as Tree
from tests.shell.zk_world import Proxy
from tests.spark.conftest import Topic
from tests.spark.fakes import InThread, World
from tests.spark.on_cluster import lethal
from tests.spark.played import consumer_of
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, Seen, coordinating, endless
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.spark import Batch, SparkConsumer
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.jobs import jobs_of
from zkcoord.spark.meter import meter_of
from zkcoord.spark.ports import Limits
from zkcoord.spark.readers import ranges as reader_ranges
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.status import decode_status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_REAL_SERVERS
SOON = {
    "kafka.request.timeout.ms": "2000",
    "kafka.default.api.timeout.ms": "3000",
    "librdkafka.reconnect.backoff.max.ms": "500",
}


@pytest.mark.parametrize("reader", ["kafka", "python"])
def test_a_broker_that_dies_in_the_middle_of_a_batch_is_waited_for(
    spark: SparkSession, own_kafka: KafkaBroker, chroot: str, monkeypatch: pytest.MonkeyPatch, reader: Any
) -> None:
    monkeypatch.setattr(reader_ranges, "POLL_TIMEOUT_MS", 2_000)
    patient = Limits(away_batches_max=50)  # as patient as with 20 s, since a broker may be slow after its start
    monkeypatch.setattr(RealDependencies, "limits", patient)
    topic = Topic(own_kafka, 2)
    topic.show_in(chroot)
    topic.fill(0, 20)
    seen, ids = Seen(), list[str]()
    process = seen.process_as("a")
    restarts, runs = list[InThread](), list[InThread]()

    def lose_it_once(df: DataFrame, batch: Batch) -> None:
        ids.append(batch.id)
        if not restarts:
            assert df.count() == 20
            own_kafka.kill()
            try:
                df.count()
            finally:
                restarts.append(InThread(own_kafka.start))
                runs.extend(restarts)
        process(df, batch)

    with coordinating(chroot, **topic.source):
        consumer = SparkConsumer(
            *(spark, chroot, own_kafka.bootstrap_servers, f"g-{reader}", [topic.name]),
            starting_offsets="earliest",
            reader=reader,
            config=SOON,
            warm_up=lambda df: None,  # it is tried only once, and on a busy machine a first read may take 2 s
        )
        running = InThread(lambda: consumer.run(lose_it_once))
        runs.append(running)
        seen.wait_for(lambda: len(seen.records) == 20, runs)
        restarts[0].result()
        topic.fill(1, 10)
        seen.wait_for(lambda: len(seen.records) == 30, runs)
        consumer.stop()
        assert running.result() == 2
    assert set(seen.records.values()) == {1}
    assert ids[0] == ids[1]
    assert (consumer.metrics.batches, consumer.metrics.offsets) == (2, 30)


def test_a_killed_python_worker_ends_a_local_run_and_the_next_run_reads_on(
    spark: SparkSession, make_topic: Callable[[int], Topic], tmp_path: Path
) -> None:
    topic = make_topic(1)
    topic.fill(0, 20)
    records: list[int] = []

    def process(df: DataFrame, batch: Batch) -> None:
        rows = df.select("offset").mapInArrow(lethal(str(tmp_path / "killed"), 0), "offset bigint")
        records.extend(sorted(row.offset for row in rows.collect()))

    world = World()
    consumer = consumer_of(world, spark, topic)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        consumer.run(process)
    assert (world.commits, world.events[-1]) == ([], "leave")
    assert consumer.run(process, max_batches=1) == 1
    assert records == list(range(20))
    assert world.commits == [{TopicPartition(topic.name, 0): 20}]


def hang_once(df: DataFrame, begun: threading.Event, ended: threading.Event) -> bool:
    """In the first batch run a job that ends only when it is cancelled; in the others return False."""
    if begun.is_set():
        return False
    begun.set()
    try:
        endless(df)
    finally:
        ended.set()
    return True


def test_a_session_that_expires_in_the_middle_of_a_batch_is_followed_by_another(
    spark: SparkSession, make_topic: Callable[[int], Topic], zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    topic = make_topic(2)
    topic.fill(0, 20)
    topic.show_in(chroot)
    seen = Seen()
    process = seen.process_as("a")
    begun, ended = threading.Event(), threading.Event()

    def work(df: DataFrame, batch: Batch) -> None:
        hang_once(df, begun, ended)
        process(df, batch)

    with Proxy(zookeeper.port) as proxy, Tree(chroot) as world:
        world.coordinate(**topic.source)
        consumer = SparkConsumer(
            *(spark, f"{proxy.hosts}/{chroot.partition('/')[2]}", topic.bootstrap_servers, "g", [topic.name]),
            starting_offsets="earliest",
            session_timeout_ms=6_000,
        )
        running = InThread(lambda: consumer.run(work))
        assert begun.wait(DEADLINE_S)
        (first,) = world.children(DRAFT.ids("g"))
        proxy.down()
        assert ended.wait(DEADLINE_S), "the batch runs on without a lease"
        wait_until(lambda: world.children(DRAFT.ids("g")) == [], "the session expires")
        proxy.up()
        seen.wait_for(lambda: len(seen.records) == 20)
        (second,) = world.children(DRAFT.ids("g"))
        consumer.stop()
        assert running.result() == 1
        assert world.data(f"{DRAFT.offsets('g')}/{topic.name}/0") == b"20"
    assert first != second
    assert set(seen.records.values()) == {1}
    assert consumer.metrics.lost == 1


def test_f06_a_member_with_a_hanging_batch_is_evicted_and_one_with_a_long_batch_is_not(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealDependencies, "limits", Limits(look_ms=200))
    topic = make_topic(1)
    topic.fill(0, 20)
    topic.show_in(chroot)
    seen = Seen()
    process = seen.process_as("a")
    hanging, answers = threading.Event(), set[str]()
    batches: list[Batch] = []

    def work(df: DataFrame, batch: Batch) -> None:
        batches.append(batch)
        if batch.seq == 0:
            (me,) = world.children(DRAFT.ids("g"))
            wait_until(lambda: spark.range(10).count() == 10 and probed(me) > 5, "it is probed")
        elif batch.seq == 1:
            hanging.set()
            wait_until(lambda: bool(world.reports.of("session_lost")), "its eviction")
            return  # a job that began now might be cancelled or not, since its consumer will soon know the loss
        process(df, batch)

    def probed(consumer_id: str) -> int:
        answers.add(decode_status(world.data(DRAFT.channel("g", consumer_id))).pinged)
        return len(answers)

    with Tree(chroot) as world:
        world.coordinate(**topic.source)
        consumer = SparkConsumer(
            *(spark, chroot, topic.bootstrap_servers, "g", [topic.name]),
            starting_offsets="earliest",
            max_offsets_per_batch=10,
            session_timeout_ms=6_000,
        )
        running = InThread(lambda: consumer.run(work))
        wait_until(lambda: world.children(DRAFT.ids("g")) != [], "it registers")
        world.put(DRAFT.record("g"), {"policy": {"probe_interval_ms": 1_000, "max_probes": 3}})
        assert hanging.wait(DEADLINE_S), "the first batch has not ended"
        assert world.reports.of("evicted") == []
        seen.wait_for(lambda: len(seen.records) == 20)
        consumer.stop()
        assert running.result() == 2
        assert [each.ranges for each in batches[1:]] == [batches[1].ranges] * 2
        assert set(seen.records.values()) == {1}
        (evicted,) = world.reports.of("evicted")
        assert world.data(f"{DRAFT.offsets('g')}/{topic.name}/0") == b"20"
    assert "stalled: lag 10 and progress " in evicted["why"]
    assert consumer.metrics.lost == 1


def test_one_long_job_gets_on_as_its_tasks_end(spark: SparkSession) -> None:
    meter = meter_of(spark, measure_bytes=False)
    nap = "reflect('java.lang.Thread', 'sleep', cast(50 as bigint)) as slept"
    looks: list[Any] = []

    def work() -> None:
        with jobs_of(spark).running("long", "a long job"):
            spark.range(0, 40, 1, 40).selectExpr(nap).write.format("noop").mode("overwrite").save()

    running = InThread(work)
    while not running.done:
        looks.append(meter.activity("long") or ())  # Spark knows a job for a moment before it knows its stages
    running.result()
    (stage,) = {each[1][0] for each in looks if len(each) == 2}
    ended = [each[1][2] for each in looks if len(each) == 2]
    assert ended == sorted(ended)
    assert len(set(ended)) >= 5, (stage, ended)
    assert set(map(len, looks)) <= {0, 1, 2}  # how many jobs, and the active one's only stage


def test_batches_go_on_without_a_coordinator_and_the_next_one_takes_over(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str
) -> None:
    topic = make_topic(2)
    topic.show_in(chroot)
    seen = Seen()

    def consumer() -> SparkConsumer:
        return SparkConsumer(
            *(spark, chroot, topic.bootstrap_servers, "g", [topic.name]),
            starting_offsets="earliest",
        )

    def fill_and_wait(count: int) -> None:
        for partition in range(2):
            topic.fill(partition, 10)
        seen.wait_for(lambda: len(seen.records) == count)

    first, second = consumer(), consumer()
    with Tree(chroot) as world:
        with coordinating(chroot, **topic.source):
            running = [InThread(lambda: first.run(seen.process_as("first")))]
            fill_and_wait(20)
        wait_until(lambda: world.data(DRAFT.coordinator) == b"", "the coordinator is gone")
        fill_and_wait(40)
        running.append(InThread(lambda: second.run(seen.process_as("second"))))
        fill_and_wait(60)
        wait_until(lambda: len(world.children(DRAFT.ids("g"))) == 2, "the second registers")
        assert set(seen.by) == {"first"}
        world.coordinate(**topic.source)
        wait_until(lambda: len(world.reports.of("fetch_started")) == 2, "it is given a partition")
        fill_and_wait(80)
        assert len(seen.by["second"]) == 1
        for each, run in zip((first, second), running, strict=True):
            each.stop()
            run.result()
    assert set(seen.records.values()) == {1}
