"""One Spark session for all tests that need a real one, and topics on the real broker."""

from __future__ import annotations

import gc
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.brokers import source_of
from tests.kafka.topics import await_partitions, create_topic
from tests.spark.fakes import World
from tests.spark.postgres import postgres_server
from tests.spark.streams import Stream
from tests.spark.together import coordinating
from zkcoord.core.model import TopicPartition
from zkcoord.spark.readers import kept_clients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zkcoord.embedded.kafka import KafkaBroker

TIMEOUT_S = 120  # only a failure takes so long


class Topic:
    """A topic of its own for one test; the records are `value-<n>`, n from 0 in each partition.

    `source`: the arguments with which a coordinator takes topics from this broker.
    """

    def __init__(self, kafka: KafkaBroker, partitions: int, **config: str) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self.source = source_of(kafka)
        self.name = f"topic-{uuid.uuid4().hex[:8]}"
        self._partitions = partitions
        self.create(**config)

    def create(self, **config: str) -> None:
        admin = self._admin()
        named = {key.replace("_", "."): value for key, value in config.items()}
        create_topic(admin, self.name, self._partitions, config=named)

    def grow(self, partitions: int) -> None:
        """Raise the number of partitions to this one."""
        from confluent_kafka.admin import NewPartitions

        self._partitions = partitions
        admin = self._admin()
        admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(TIMEOUT_S)
        await_partitions(admin, self.name, partitions)

    def _admin(self) -> Any:
        """Return a client for one request. The caller keeps it until the answer. It is no attribute of this object,
        since Spark keeps the objects that a query's functions use, this one too, longer than the broker runs."""
        from confluent_kafka.admin import AdminClient

        quiet = {"log_level": 5}  # at its end it tells, as information, that an event was not served
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, **quiet})

    def show_in(self, zookeeper: str) -> None:
        """Copy the topic's node from this broker's tree into another one. (With Kafka 4 a coordinator writes it.)"""
        from kazoo.client import KazooClient

        if self.source:
            return
        client = KazooClient(zookeeper)
        client.start(TIMEOUT_S)
        try:
            partitions = {str(number): [0] for number in range(self._partitions)}
            text = json.dumps({"version": 1, "partitions": partitions})
            path = f"/brokers/topics/{self.name}"
            if client.exists(path):
                client.set(path, text.encode())
            else:
                client.create(path, text.encode(), makepath=True)
        finally:
            client.stop()
            client.close()

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete records as retention does, so that the log starts at `offset`."""
        from confluent_kafka import TopicPartition

        admin = self._admin()
        for each in admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            each.result(TIMEOUT_S)

    def fill(
        self,
        partition: int,
        count: int,
        headers: list[tuple[str, bytes]] | None = None,
        times: Sequence[datetime] = (),
    ) -> None:
        """Write records. `times`: their timestamps; by default the present time."""
        from confluent_kafka import Producer

        failed: list[Any] = []
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 60_000})  # all with the flush
        for number in range(count):
            producer.produce(
                self.name,
                value=f"value-{number}".encode(),
                key=b"key",
                partition=partition,
                headers=headers,
                timestamp=int(times[number].timestamp() * 1000) if times else 0,
                on_delivery=lambda error, message: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert failed == []


@pytest.fixture
def world() -> World:
    """A faked world in which the consumer is given two partitions: 10 records in one, 30 in the other."""
    made = World()
    made.given = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 100}
    made.ends = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 130}
    return made


@pytest.fixture
def make_topic(kafka: KafkaBroker) -> Callable[[int], Topic]:
    return lambda partitions: Topic(kafka, partitions)


@pytest.fixture
def source(kafka: KafkaBroker) -> Mapping[str, Any]:
    """The arguments with which a coordinator takes topics from the shared broker."""
    return source_of(kafka)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """How a driver connects to the PostgreSQL of all tests. A test drops its tables before it makes them."""
    with postgres_server() as where:
        yield where


@pytest.fixture
def own_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The consumers that this test makes in this process. None is kept before the test; they are closed after it."""
    import confluent_kafka

    clients: list[Any] = []

    class Listed(confluent_kafka.Consumer):  # type: ignore[misc]
        def __init__(self, *settings: Any, **log: Any) -> None:
            super().__init__(*settings, **log)
            clients.append(self)

    monkeypatch.setattr(confluent_kafka, "Consumer", Listed)
    monkeypatch.delitem(sys.modules, kept_clients.MODULE, raising=False)
    yield clients
    for each in clients:
        each.close()


@pytest.fixture
def stream(spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str) -> Iterator[Stream]:
    """Queries of a group with a coordinator that serves, and a topic of two partitions."""
    topic = make_topic(2)
    topic.show_in(chroot)
    with coordinating(chroot, **topic.source):
        yield Stream(spark, chroot, topic)
        for query in spark.streams.active:
            query.stop()
    gc.collect()  # the sockets that PySpark leaves, here, where their warning is known


@pytest.fixture(params=["records", "ranges"])
def either(stream: Stream, request: pytest.FixtureRequest) -> Stream:
    """The same. The rows are records, or ranges that Spark's connector then reads."""
    stream.of_ranges = request.param == "ranges"
    return stream
