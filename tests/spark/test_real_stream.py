"""`format("zkcoord")` as a member of a real group: coordinator, ZooKeeper, Kafka and Spark are all real."""

from __future__ import annotations

import gc
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.test_real_group import coordinating
from zkcoord.clock import mono_ms
from zkcoord.spark import register_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.spark.conftest import Topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.zookeeper,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark's collect() leaves its socket
]
DEADLINE_S = 60.0


class Stream:
    """Queries of one group on one topic, and what each of their batches held."""

    def __init__(self, spark: SparkSession, zookeeper: str, topic: Topic) -> None:
        register_source(spark)
        self.spark, self.zookeeper, self.topic = spark, zookeeper, topic
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self.batches: list[
            tuple[str, int, list[tuple[int, int]]]
        ] = []  # query, number, (partition, offset) of each row
        self.before: Callable[[int], None] = lambda number: None  # called in each batch, before its rows are taken
        self._changed = threading.Condition()

    def rows(self, **options: str) -> DataFrame:
        return (
            self.spark.readStream.format("zkcoord")
            .option("zookeeper", self.zookeeper)
            .option("kafka.bootstrap.servers", self.topic.bootstrap_servers)
            .option("group", self.group)
            .option("subscribe", self.topic.name)
            .option("startingOffsets", "earliest")
            .option("sessionTimeoutMs", "6000")
            .options(**options)
            .load()
        )

    def start(
        self, name: str, checkpoint: Path, trigger: dict[str, Any] | None = None, **options: str
    ) -> StreamingQuery:
        def process(df: DataFrame, number: int) -> None:
            self.before(number)
            rows = sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())
            with self._changed:
                self.batches.append((name, number, rows))
                self._changed.notify_all()

        writer = self.rows(**options).writeStream.foreachBatch(process).option("checkpointLocation", str(checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    @property
    def records(self) -> Counter[tuple[int, int]]:
        return Counter(row for _, _, rows in self.batches for row in rows)

    def by(self, name: str) -> set[int]:
        return {partition for query, _, rows in self.batches for partition, _ in rows if query == name}

    def wait_for(self, what: Callable[[], bool], *queries: StreamingQuery) -> None:
        with self._changed:
            assert self._changed.wait_for(what, DEADLINE_S), [each.exception() for each in queries] or self.batches


@pytest.fixture
def stream(spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str) -> Iterator[Stream]:
    """With a coordinator that serves, and a topic of two partitions."""
    topic = make_topic(2)
    topic.show_in(chroot)
    with coordinating(chroot):
        yield Stream(spark, chroot, topic)
        for query in spark.streams.active:
            query.stop()
    gc.collect()  # the sockets that PySpark leaves, here, where their warning is known


def test_a_query_reads_what_is_there_and_what_comes(stream: Stream, tmp_path: Path) -> None:
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 10)
    query = stream.start("a", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 30, query)
    stream.topic.fill(0, 5)
    stream.wait_for(lambda: len(stream.records) == 35, query)
    query.stop()
    assert set(stream.records.values()) == {1}


def await_progress(query: StreamingQuery, number: int) -> dict[str, Any]:
    """The progress of a batch that Spark has noted as complete."""
    deadline = mono_ms() + DEADLINE_S * 1000
    while mono_ms() < deadline:
        for each in query.recentProgress:
            if each["batchId"] == number and each["numInputRows"]:
                return dict(each)
        threading.Event().wait(0.05)
    raise AssertionError(query.recentProgress)


def test_a_restarted_query_does_not_read_a_complete_batch_again_that_was_not_committed(
    stream: Stream, tmp_path: Path
) -> None:
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 10)
    first = stream.start("first", tmp_path, {"processingTime": "1 hour"})
    source = await_progress(first, 0)["sources"][0]
    ranges = json.loads(source["endOffset"])["ranges"][stream.topic.name]
    assert ranges == {"0": {"lo": 0, "hi": 20, "end": 20}, "1": {"lo": 0, "hi": 10, "end": 10}}
    first.stop()  # the source never heard that the batch is complete
    stream.topic.fill(0, 7)
    second = stream.start("second", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 37, second)
    second.stop()
    assert set(stream.records.values()) == {1}


def test_a_broken_batch_is_read_again_with_its_own_ranges(stream: Stream, tmp_path: Path) -> None:
    def fail(number: int) -> None:
        raise RuntimeError("the sink is away")

    stream.topic.fill(0, 7)
    stream.before = fail
    first = stream.start("first", tmp_path)
    with pytest.raises(Exception, match="the sink is away"):
        first.awaitTermination(int(DEADLINE_S))
    stream.before = lambda number: None
    stream.topic.fill(0, 5)
    stream.topic.fill(1, 3)
    second = stream.start("second", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 15, second)
    second.stop()
    assert stream.batches[0] == ("second", 0, [(0, offset) for offset in range(7)])
    assert set(stream.records.values()) == {1}


def test_available_now_reads_what_is_there_and_ends(stream: Stream, tmp_path: Path) -> None:
    for count in (20, 7):
        stream.topic.fill(0, count)
        query = stream.start(f"run of {count}", tmp_path, {"availableNow": True})
        assert query.awaitTermination(int(DEADLINE_S))
    assert stream.records == Counter({(0, offset): 1 for offset in range(27)})


def test_partitions_move_between_two_queries_and_no_record_comes_twice(stream: Stream, tmp_path: Path) -> None:
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 20)
    first = stream.start("first", tmp_path / "first")
    stream.wait_for(lambda: len(stream.records) == 40, first)
    second = stream.start("second", tmp_path / "second")
    for count in range(1, 200):
        stream.topic.fill(0, 1)
        stream.topic.fill(1, 1)
        stream.wait_for(lambda count=count: len(stream.records) == 40 + 2 * count, first, second)
        if stream.by("second"):
            break
    assert len(stream.by("second")) == 1
    first.stop()
    stream.topic.fill(0, 5)
    stream.topic.fill(1, 5)
    stream.wait_for(lambda: len(stream.records) == 50 + 2 * count, second)
    second.stop()
    assert set(stream.records.values()) == {1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribePattern": "a.*"}, "say what to read"),
        ({"assign": "{}"}, "option assign is not one of format"),
        ({"maxOffsetsPerTrigger": "many"}, "must be a whole number"),
        ({"startingOffsets": '{"t":{"0":5}}'}, "zkcoord group reset-offsets"),
        ({"kafka.max.poll.records": "5"}, "leave it out"),
        ({"colour": "red"}, "has no option colour"),
    ],
)
def test_wrong_options_are_told_when_the_source_is_loaded(stream: Stream, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        stream.rows(**options)
