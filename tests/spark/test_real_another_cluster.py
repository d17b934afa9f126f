"""With real Spark, Kafka's host name leads to another cluster between two batches, or within one batch."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from tests.kafka.two_clusters import TwoClusters, two_clusters
from tests.spark.conftest import Topic
from tests.spark.fakes import World
from tests.spark.played import consumer_of
from tests.spark.streams import Stream
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, coordinating
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.errors import UsageError
from zkcoord.spark import SparkConsumer
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_REAL_SERVERS
TWO = pytest.mark.parametrize("counts", [(10, 20), (10, 5)], ids=["which has more", "which has less"])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def brokers(zookeeper: EmbeddedZooKeeper) -> Iterator[list[EmbeddedKafka]]:
    """The brokers of two clusters. They are real, since Spark's connector cannot read from librdkafka's mock
    clusters."""
    with (
        EmbeddedKafka(f"{zookeeper.hosts}/first", heap="256m") as first,
        EmbeddedKafka(f"{zookeeper.hosts}/second", heap="256m") as second,
    ):
        yield [first, second]


@pytest.fixture
def real(brokers: list[EmbeddedKafka]) -> Iterator[TwoClusters]:
    """The two clusters behind one address, with a topic of this test."""
    both = TwoClusters([each.bootstrap_servers for each in brokers], f"clicks-{uuid.uuid4().hex[:8]}")
    for each in brokers:
        create_topic(AdminClient({"bootstrap.servers": each.bootstrap_servers}, logger=QUIET), both.topic, 1)
    yield both
    both.way.close()


class Seen:
    """The records that a consumer processes. `strike` is called before the batch with its number is read."""

    def __init__(self, strike_at: int = -1, strike: Callable[[], None] = lambda: None) -> None:
        self.values = list[str]()
        self._strike_at, self._strike = strike_at, strike

    def __call__(self, df: DataFrame, batch: Batch) -> None:
        if batch.seq == self._strike_at:
            self._strike()
        self.values += [row.value.decode() for row in df.select("value").collect()]


def consumer(world: World, spark: SparkSession, both: TwoClusters, reader: Literal["kafka", "python"]) -> SparkConsumer:
    """Return a consumer that holds partition 0 from its beginning."""
    topic: Any = SimpleNamespace(name=both.topic, bootstrap_servers=both.servers)
    return consumer_of(world, spark, topic, reader=reader, max_offsets_per_batch=5)


def first_read(both: TwoClusters, count: int) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the commits and the processed records after this number of records of the first cluster."""
    return {TopicPartition(both.topic, 0): count}, [f"0-{number}" for number in range(count)]


@TWO
def test_f312_tasks_in_python_return_no_records_of_another_cluster(
    spark: SparkSession, world: World, counts: tuple[int, int]
) -> None:
    with two_clusters(counts) as both:
        seen = Seen(1, lambda: both.way.lead(1))
        with pytest.raises(UsageError, match=r"another (Kafka )?cluster"):
            consumer(world, spark, both, "python").run(seen)
        assert (world.commits[-1], seen.values) == first_read(both, 5)


@TWO
def test_f312_the_end_of_another_clusters_log_moves_no_position(
    spark: SparkSession, world: World, counts: tuple[int, int]
) -> None:
    """The name changes between two batches, when the first cluster's log has no more records."""
    with two_clusters(counts) as both:
        seen = Seen()
        world.before_commit = [lambda: None, lambda: both.way.lead(1)]
        with pytest.raises(UsageError, match="is another cluster now"):
            consumer(world, spark, both, "python").run(seen)
        assert (world.commits[-1], seen.values) == first_read(both, 10)


@TWO
def test_f312_records_that_spark_read_from_another_cluster_are_not_committed(
    spark: SparkSession, world: World, real: TwoClusters, counts: tuple[int, int]
) -> None:
    real.fill(counts)
    with pytest.raises(UsageError, match="is another cluster now"):
        consumer(world, spark, real, "kafka").run(Seen(1, lambda: real.way.lead(1)))
    assert world.commits == [first_read(real, 5)[0]]


def test_f312_new_connections_of_spark_s_connector_are_looked_after(
    spark: SparkSession, world: World, real: TwoClusters
) -> None:
    """Old connections to the first cluster stay; only new connections lead to the other cluster."""
    world.limits = Limits(anew_ms=0)
    real.fill((10, 20))
    with pytest.raises(UsageError, match="is another cluster now"):
        consumer(world, spark, real, "kafka").run(Seen(1, lambda: real.way.lead(1, cut=False)))
    assert world.commits == [first_read(real, 5)[0]]


@pytest.mark.parametrize("rows", ["records", "ranges"])
def test_f312_a_query_commits_nothing_that_it_has_read_of_another_cluster(
    spark: SparkSession, chroot: str, real: TwoClusters, tmp_path: Path, rows: str
) -> None:
    real.fill((10, 20))
    topic: Any = SimpleNamespace(name=real.topic, bootstrap_servers=real.servers, source={}, _partitions=1)
    Topic.show_in(topic, chroot)
    stream = Stream(spark, chroot, topic)
    stream.of_ranges = rows == "ranges"

    def strike(number: int) -> None:
        if number == 1:
            wait_until(lambda: stream.committed() == {0: 5}, "the first batch is committed")
            real.way.lead(1)

    stream.before = strike
    with coordinating(chroot):
        query = stream.start("a", tmp_path, maxOffsetsPerTrigger="5")
        with pytest.raises(Exception, match=r"another (Kafka )?cluster"):
            query.awaitTermination(int(DEADLINE_S))
        query.stop()
    processed = 2 if stream.of_ranges else 1  # tasks in Python return nothing of the other cluster
    assert (stream.committed(), len(stream.batches)) == ({0: 5}, processed)
