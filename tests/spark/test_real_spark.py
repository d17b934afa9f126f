"""The loop with real Spark, the real connector and a real broker; the membership is played by the test."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.fakes import DEADLINE_S, InThread, World
from tests.spark.played import consumer_of
from tests.spark.together import ON_REAL_SERVERS, endless
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.spark import Batch, SparkConsumer, write_parquet_ranges, write_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topic

ROOT = Path(__file__).parents[2]
pytestmark = ON_REAL_SERVERS


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def consume(world: World, spark: SparkSession) -> Callable[..., SparkConsumer]:
    return lambda topic, **choices: consumer_of(world, spark, topic, **choices)


def await_job(spark: SparkSession) -> None:
    tracker, tick = spark.sparkContext.statusTracker(), threading.Event()
    for _ in range(int(DEADLINE_S * 20)):
        if tracker.getActiveJobsIds():
            return
        tick.wait(0.05)
    raise AssertionError("no job became active")


def await_no_job(spark: SparkSession) -> None:
    """Wait until no job runs. (Spark's tracker knows a job's end a moment later than the job's caller.)"""
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), "no job is active")


@pytest.mark.kafka4
def test_every_record_is_read_once_and_in_order(
    consume: Any, make_topic: Callable[[int], Topic], world: World, spark: SparkSession
) -> None:
    topic = make_topic(3)
    for partition, count in enumerate((40, 5, 0)):
        topic.fill(partition, count, [("h", b"1")])
    world.given = {TopicPartition(topic.name, partition): 0 for partition in range(3)}
    seen: list[tuple[int, int]] = []
    plans: list[str] = []

    def process(df: DataFrame, batch: Batch) -> None:
        rows = df.selectExpr("partition", "offset", "cast(value as string) as value", "headers").collect()
        assert all(row.value == f"value-{row.offset}" for row in rows)
        assert {(header.key, bytes(header.value)) for row in rows for header in row.headers} == {("h", b"1")}
        seen.extend(sorted((row.partition, row.offset) for row in rows))
        plans.append(df._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]
        described.append(spark.sparkContext.getLocalProperty("spark.job.description"))

    described: list[str] = []
    consumer = consume(topic, include_headers=True, max_offsets_per_batch=16)
    assert consumer.run(process, idle_timeout_ms=0) == 3
    assert sorted(seen) == [(0, offset) for offset in range(40)] + [(1, offset) for offset in range(5)]
    assert world.final == {
        TopicPartition(topic.name, 0): 40,
        TopicPartition(topic.name, 1): 5,
        TopicPartition(topic.name, 2): 0,
    }
    assert all("BatchScan" in plan for plan in plans), plans[0]  # the V2 path
    assert f"16 offsets: {topic.name}-0 0..11, {topic.name}-1 0..5" in described[0]
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
    assert list(spark.sparkContext.getJobTags()) == []


def test_a_loss_cancels_the_running_job_and_commits_nothing(
    consume: Any, make_topic: Callable[[int], Topic], world: World, spark: SparkSession
) -> None:
    topic = make_topic(2)
    topic.fill(0, 10)
    topic.fill(1, 10)
    first, second = TopicPartition(topic.name, 0), TopicPartition(topic.name, 1)
    world.given = {first: 0, second: 0}
    counts: list[int] = []
    begun = threading.Event()

    def process(df: DataFrame, batch: Batch) -> None:
        begun.set()
        counts.append(endless(df) if batch.seq == 0 else df.count())

    running = InThread(lambda: consume(topic).run(process, max_batches=1))
    assert begun.wait(DEADLINE_S)  # before that, Spark may still report the warm-up's job
    await_job(spark)
    world.member.lose(first)
    assert running.result() == 1
    assert counts == [10]
    assert world.commits == [{second: 10}]
    await_no_job(spark)


def test_sigterm_during_a_job_lets_it_finish(
    consume: Any, make_topic: Callable[[int], Topic], world: World, spark: SparkSession
) -> None:
    topic = make_topic(1)
    topic.fill(0, 1000)
    counts: list[int] = []
    helpers: list[InThread] = []

    def process(df: DataFrame, batch: Batch) -> None:
        if not helpers:  # where a batch more begins, a second signal might come when nobody heeds it any more
            helpers.append(InThread(lambda: (await_job(spark), os.kill(os.getpid(), signal.SIGTERM))))
        counts.append(df.crossJoin(spark.range(300_000)).selectExpr("hash(value, id) as h").where("h = 1").count())

    assert consume(topic, max_offsets_per_batch=100).run(process) >= 1
    helpers[0].result()
    assert world.commits == [{TopicPartition(topic.name, 0): 100 * (n + 1)} for n in range(len(counts))]
    assert world.events[-1] == "leave"


@pytest.mark.usefixtures("foreground")
def test_a_second_ctrl_c_cancels_the_job_and_leaves_a_session_that_works(
    consume: Any,
    make_topic: Callable[[int], Topic],
    world: World,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic(1)
    topic.fill(0, 10)
    caplog.set_level(logging.INFO, "zkcoord.spark")

    def interrupt_twice() -> None:
        await_job(spark)
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: "Ctrl-C again breaks it off" in caplog.text, "the first one is heard")
        os.kill(os.getpid(), signal.SIGINT)

    helpers: list[InThread] = []

    def process(df: DataFrame, batch: Batch) -> None:
        helpers.append(InThread(interrupt_twice))
        endless(df)

    consumer = consume(topic)
    with pytest.raises(KeyboardInterrupt):
        consumer.run(process)
    helpers[0].result()
    assert (world.commits, consumer.metrics.lost, world.events[-1]) == ([], 1, "leave")
    assert spark.range(7).count() == 7
    await_no_job(spark)


def test_a_topic_that_was_created_again_is_read_from_where_the_policy_says(
    consume: Any, make_topic: Callable[[int], Topic], world: World
) -> None:
    topic = make_topic(1)
    topic.fill(0, 5)
    world.given = {TopicPartition(topic.name, 0): 5_000}
    ranges: list[str] = []
    consumer = consume(topic, starting_offsets="earliest")
    consumer.run(lambda df, batch: ranges.extend(str(each) for each in batch.ranges), max_batches=1)
    assert ranges == [f"{topic.name}-0-0-5"]


def test_a_range_written_again_replaces_its_own_file(
    consume: Any, make_topic: Callable[[int], Topic], world: World, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(2)
    topic.fill(0, 30)
    topic.fill(1, 20)
    world.given = {TopicPartition(topic.name, partition): 0 for partition in range(2)}
    written: list[object] = []

    def process(df: DataFrame, batch: Batch) -> None:
        for _ in range(2):
            written.append(write_parquet_ranges(df, batch, tmp_path))

    consume(topic).run(process, max_batches=1)
    names = [f"{topic.name}-0-0-30.parquet", f"{topic.name}-1-0-20.parquet"]
    assert written == [((names[0], 30), (names[1], 20))] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert spark.read.parquet(str(tmp_path)).count() == 50


def test_a_table_has_what_was_committed_and_nothing_of_a_batch_that_was_cancelled(
    consume: Any, make_topic: Callable[[int], Topic], world: World, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        topic.fill(partition, 1_500)
    first, second = (TopicPartition(topic.name, partition) for partition in range(2))
    world.given = {first: 0, second: 0}
    connect = partial(sqlite3.connect, tmp_path / "table.db")
    database = connect()
    database.execute('CREATE TABLE clicks (topic, "partition", "offset", value)')
    database.execute('CREATE TABLE written (topic, "partition", next_offset, PRIMARY KEY (topic, "partition"))')

    def process(df: DataFrame, batch: Batch) -> None:
        begun.set()
        rows = df.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
        if batch.seq == 0:  # rows come from time to time, without end
            rows = rows.crossJoin(spark.range(10**13)).where("hash(value, id) % 1000000 = 1").drop("id")
        sent.append(write_sql(rows, batch, connect, "clicks", offsets_table="written"))

    sent: list[int] = []
    begun = threading.Event()
    running = InThread(lambda: consume(topic).run(process, max_batches=1))
    assert begun.wait(DEADLINE_S)
    await_job(spark)
    world.member.lose(first)
    assert running.result() == 1
    assert sent == [1_500]
    assert database.execute("SELECT * FROM written").fetchall() == [(topic.name, 1, 1_500)]
    counts = 'SELECT "partition", count(*), count(DISTINCT "offset") FROM clicks GROUP BY "partition"'
    assert database.execute(counts).fetchall() == [(1, 1_500, 1_500)]
    await_no_job(spark)
    database.close()


def test_a_user_error_reaches_the_caller_and_commits_nothing(
    consume: Any, make_topic: Callable[[int], Topic], world: World
) -> None:
    topic = make_topic(1)
    topic.fill(0, 5)
    with pytest.raises(Exception, match="a bad record"):
        consume(topic).run(lambda df, batch: df.selectExpr("raise_error('a bad record') as e").collect())
    assert world.commits == []
    assert world.events[-1] == "leave"


NO_CONNECTOR = """
from zkcoord.embedded import spark_environment
from zkcoord.errors import UsageError
from zkcoord.spark import spark_session
from zkcoord.spark.options import Options
from zkcoord.spark.readers.kafka import KafkaReader, connector_options
spark = spark_session("no connector", environment=spark_environment())
try:
    KafkaReader(spark, connector_options("127.0.0.1:1", "g", Options())).read(())
except UsageError as error:
    print("told:", error)
spark.stop()
"""


def test_a_session_without_the_connector_is_told_which_one_to_add() -> None:
    done = subprocess.run([sys.executable, "-c", NO_CONNECTOR], capture_output=True, text=True, timeout=120, check=True)
    assert "told:" in done.stdout
    assert f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}" in done.stdout


MISFIT = """
import sys
from tests.spark.fakes import World
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import spark_environment
from zkcoord.errors import UsageError
from zkcoord.spark import SparkConsumer, spark_session
from zkcoord.spark.options import Options
from zkcoord.spark.readers.kafka import KafkaReader, connector_options
spark = spark_session("misfit", jars=sys.argv[1:], environment=spark_environment(), log_level="OFF")
world = World()
world.ends = {TopicPartition("t", 0): 10}
world.reader = lambda: KafkaReader(spark, connector_options("127.0.0.1:1", "g", Options()))
try:
    SparkConsumer(spark, "", "", "g", ["t"], dependencies=world).run(lambda df, batch: None)
except UsageError as error:
    print("told:", error)
spark.stop()
"""


def test_a_connector_that_fails_only_when_a_batch_is_planned_is_told_too(spark_java: None, tmp_path: Path) -> None:
    from zkcoord.embedded import connector_jars

    jars = {jar.name: jar for jar in connector_jars()}
    (name,) = (each for each in jars if each.startswith("spark-sql-kafka"))
    lacking = "org/apache/spark/sql/kafka010/KafkaBatch.class"  # as if it were of another version
    with zipfile.ZipFile(jars[name]) as whole, zipfile.ZipFile(tmp_path / name, "w") as misfit:
        for entry in whole.namelist():
            if entry != lacking:
                misfit.writestr(entry, whole.read(entry))
    jars[name] = tmp_path / name
    command = [sys.executable, "-c", MISFIT, *map(str, jars.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=ROOT)
    coordinate = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
    told = "told: Spark has no usable Kafka connector (NoClassDefFoundError: org/apache/spark/sql/kafka010/KafkaBatch)"
    assert done.stdout.startswith(f"{told}: it needs {coordinate} ")
