"""Both readers return the same rows of a real log in Spark's own Kafka columns, also at gaps, transactions and
headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import TIMEOUT_S, Topic
from tests.spark.fakes import World
from tests.spark.played import consumer_of
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.spark import Batch
from zkcoord.spark.readers.python import Slice, read_slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_REAL_SERVERS
READERS = ("kafka", "python")


@pytest.fixture
def world() -> World:
    return World()


def test_both_readers_give_the_same_rows_and_columns(
    world: World, make_topic: Callable[[int], Topic], spark: SparkSession
) -> None:
    topic = make_topic(2)
    topic.fill(0, 25, [("h", b"1"), ("n", None)])
    topic.fill(1, 3)
    world.given = {TopicPartition(topic.name, partition): 0 for partition in range(2)}
    seen: dict[str, list[Any]] = {}
    columns: dict[str, str] = {}
    for reader in READERS:
        found = seen.setdefault(reader, [])

        def process(df: DataFrame, batch: Batch, found: list[Any] = found, reader: str = reader) -> None:
            columns[reader] = df.schema.simpleString()
            found.extend(sorted(df.collect(), key=lambda row: (row.partition, row.offset)))

        consumer = consumer_of(world, spark, topic, reader=reader, include_headers=True, max_offsets_per_task=10)
        assert consumer.run(process, idle_timeout_ms=0) == 1
        assert (consumer.metrics.rows, consumer.metrics.offsets) == (28, 28)
    assert columns["python"] == columns["kafka"]
    assert len(seen["kafka"]) == 28
    assert seen["python"] == seen["kafka"]
    assert world.final == {TopicPartition(topic.name, 0): 25, TopicPartition(topic.name, 1): 3}


def transactions(topic: Topic) -> None:
    """Five committed records, five aborted ones that were written, five more; with markers between them."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": topic.bootstrap_servers, "transactional.id": topic.name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    for committed in (True, False, True):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic.name, value=f"{committed}-{number}".encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        (producer.commit_transaction if committed else producer.abort_transaction)(TIMEOUT_S)


@pytest.mark.parametrize("reader", READERS)
def test_gaps_of_transactions_are_passed_over_and_the_ranges_end_is_committed(
    world: World, make_topic: Callable[[int], Topic], spark: SparkSession, reader: str
) -> None:
    topic = make_topic(1)
    transactions(topic)
    values: list[list[str]] = []

    def process(df: DataFrame, batch: Batch) -> None:
        values.append([bytes(row.value).decode() for row in df.select("value").collect()])

    choices: dict[str, Any] = {"reader": reader, "config": {"isolation.level": "read_committed"}}
    consumer_of(world, spark, topic, max_offsets_per_batch=6, **choices).run(process, idle_timeout_ms=0)
    committed = [f"True-{number}" for number in range(5)]
    assert values == [committed, [], committed]
    assert world.commits == [{TopicPartition(topic.name, 0): end} for end in (6, 12, 18)]


@contextmanager
def eager_cleaner(kafka: KafkaBroker) -> Iterator[None]:
    """A broker whose log cleaner looks for logs to compact five times a second."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 5})

    def alter(kind: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=kind)
        broker = ConfigResource(ResourceType.BROKER, str(kafka.broker_id), incremental_configs=[entry])
        for each in admin.incremental_alter_configs([broker]).values():
            each.result(DEADLINE_S)

    alter(AlterConfigOpType.SET, "200")
    try:
        yield
    finally:
        alter(AlterConfigOpType.DELETE, None)


def kept(topic: Topic) -> list[int]:
    """Return the offsets that the first partition's log still has, as a plain client reads them."""
    slices = [Slice(topic.name, 0, 0, 121)]
    settings = {"bootstrap.servers": topic.bootstrap_servers, "group.id": "kept"}
    return [offset for batch in read_slices(settings, slices) for offset in batch.column("offset").to_pylist()]


def test_a_compacted_log_is_read_over_its_gaps(world: World, kafka: KafkaBroker, spark: SparkSession) -> None:
    topic = Topic(kafka, 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1")
    for _ in range(3):  # each time in segments of their own, of which the last is never compacted
        topic.fill(0, 40)
    topic.fill(0, 1)
    with eager_cleaner(kafka):
        wait_until(lambda: kept(topic) == [119, 120], "the log is compacted", DEADLINE_S)
    for reader in READERS:
        offsets: list[list[int]] = []
        world.commits.clear()

        def process(df: DataFrame, batch: Batch, offsets: list[list[int]] = offsets) -> None:
            offsets.append([row.offset for row in df.select("offset").collect()])

        consumer_of(world, spark, topic, reader=reader, max_offsets_per_batch=50).run(process, idle_timeout_ms=0)
        assert offsets == [[], [], [119, 120]]
        assert world.commits == [{TopicPartition(topic.name, 0): end} for end in (50, 100, 121)]


@pytest.mark.parametrize("reader", READERS)
def test_small_ranges_share_a_task_and_each_keeps_its_order(
    world: World, make_topic: Callable[[int], Topic], spark: SparkSession, reader: str
) -> None:
    topic = make_topic(4)
    transactions(topic)
    topic.fill(1, 5_000)
    topic.fill(2, 40)
    world.given = {TopicPartition(topic.name, partition): 0 for partition in range(4)}
    tasks: list[int] = []
    offsets: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def process(df: DataFrame, batch: Batch) -> None:
        tasks.append(df.rdd.getNumPartitions())
        for row in df.collect():
            offsets[row.partition].append(row.offset)

    settings = {"isolation.level": "read_committed"}
    consumer = consumer_of(
        world, spark, topic, reader=reader, min_offsets_per_task=2_900, max_offsets_per_batch=3_000, config=settings
    )
    assert consumer.run(process, idle_timeout_ms=0) == 2
    assert tasks == [2, 1], "a large range has a task of its own"
    assert offsets == {0: [*range(5), *range(12, 17)], 1: list(range(5_000)), 2: list(range(40))}
    assert world.final == {
        TopicPartition(topic.name, partition): end for partition, end in enumerate((18, 5_000, 40, 0))
    }


@pytest.mark.parametrize("reader", READERS)
def test_a_batch_whose_records_are_deleted_under_it_goes_on_by_the_policy_or_fails(
    world: World,
    make_topic: Callable[[int], Topic],
    spark: SparkSession,
    reader: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic(1)
    topic.fill(0, 100)
    ranges: list[str] = []

    def process(df: DataFrame, batch: Batch) -> None:
        ranges.extend(str(each).removeprefix(topic.name) for each in batch.ranges)
        if batch.seq == 0:
            topic.delete_before(0, 30)
        assert df.count() == sum(each.end - each.start for each in batch.ranges)

    choices: dict[str, Any] = {"reader": reader, "max_offsets_per_batch": 40}
    assert consumer_of(world, spark, topic, out_of_range="earliest", **choices).run(process, idle_timeout_ms=0) == 2
    assert ranges == ["-0-0-40", "-0-30-70", "-0-70-100"]
    (told,) = [record.message for record in caplog.records if getattr(record, "zkcoord_event", "") == "position_reset"]
    assert "records were deleted before this group read them" in told
    with pytest.raises(UsageError, match=r"lies before the log's start.*Nothing is read"):
        consumer_of(world, spark, topic, out_of_range="fail", **choices).run(process, idle_timeout_ms=0)


def test_a_time_is_the_first_record_since_then_or_the_logs_end(make_topic: Callable[[int], Topic]) -> None:
    topic, now = make_topic(2), datetime.now(UTC)
    topic.fill(0, 6, times=[now - timedelta(hours=hours) for hours in range(6, 0, -1)])
    topic.fill(1, 1, times=[now - timedelta(hours=3)])
    since = int((now - timedelta(hours=2, minutes=30)).timestamp() * 1000)
    both = [TopicPartition(topic.name, partition) for partition in range(2)]
    with KafkaClient(topic.bootstrap_servers) as client:
        assert client.reset_positions(both, since) == {both[0]: 4, both[1]: 1}


def test_bytes_are_counted_when_they_are_asked_for(
    world: World, make_topic: Callable[[int], Topic], spark: SparkSession
) -> None:
    topic = make_topic(1)
    topic.fill(0, 10)
    consumer = consumer_of(world, spark, topic, measure_bytes=True)
    consumer.run(lambda df, batch: df.count(), max_batches=1)
    assert (consumer.metrics.rows, consumer.metrics.bytes) == (10, 10 * len("key" + "value-0"))
