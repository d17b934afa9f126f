"""Poll-style consumers, a coordinator, a ZooKeeper and a Kafka, all real: nothing is lost, nothing out of order."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from tests.integration.brokers import Servers, servers_of
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.coordinator import Coordinator
from zkcoord.core.model import TopicPartition
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.errors import FencedError
from zkcoord.kafka.consumer import KafkaConsumer

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

PARTITIONS = 8
NUMBERS = itertools.count(1)


class World:
    """A topic in a cluster whose groups are coordinated, and a record of what was read by whom."""

    def __init__(self, servers: Servers) -> None:
        self.zookeeper, kafka, self.coordinator = servers
        self.bootstrap_servers = bootstrap_servers = kafka.bootstrap_servers
        number = next(NUMBERS)
        self.topic, self.group = f"clicks-{number}", f"etl-{number}"
        self._lock = threading.Lock()
        self.seen: dict[int, list[int]] = defaultdict(list)  # partition -> offsets in the order of processing
        self.by: dict[str, int] = defaultdict(int)  # reader -> messages
        self.enough = threading.Event()  # ends the producer
        admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=QUIET)
        create_topic(admin, self.topic, PARTITIONS)

    def consumer(self) -> KafkaConsumer:
        """A member of the group."""
        return KafkaConsumer(
            *(self.zookeeper, self.bootstrap_servers, self.group, [self.topic]),
            from_beginning=True,
            session_timeout_ms=6_000,
        )

    def process(self, reader: str, partition: int, offset: int) -> None:
        """What a service does with a message."""
        with self._lock:
            self.seen[partition].append(offset)
            self.by[reader] += 1

    def produce(self) -> dict[int, int]:
        """Write to all partitions until `enough`; how many each has got."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 1}, logger=QUIET)
        for count in itertools.count(1):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"x", partition=partition)
            producer.flush(PATIENCE_SECONDS)
            if self.enough.wait(0.002):
                return dict.fromkeys(range(PARTITIONS), count)
        raise AssertionError

    def stored(self) -> dict[int, int]:
        """The offsets in ZooKeeper."""
        with self._client() as client:
            return {
                int(name): int(client.get(f"{self._offsets}/{name}")[0]) for name in client.get_children(self._offsets)
            }

    def store(self, offsets: dict[int, int]) -> None:
        """Offsets that an earlier life of the group has left."""
        with self._client() as client:
            for partition, offset in offsets.items():
                client.create(f"{self._offsets}/{partition}", str(offset).encode(), makepath=True)

    @property
    def _offsets(self) -> str:
        return f"/consumers/groups/{self.group}/offsets/{self.topic}"

    @contextmanager
    def _client(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper)
        client.start(PATIENCE_SECONDS)
        try:
            yield client
        finally:
            client.stop()
            client.close()


class Reader(threading.Thread):
    """A service: polls, processes, commits now and then, leaves when told."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name=name)
        self.world = world
        self.leave = threading.Event()
        self.consumer = world.consumer()
        self.fenced: list[FencedError] = []

    def run(self) -> None:
        with self.consumer as consumer:
            while not self.leave.is_set():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                self.world.process(self.name, message.partition(), message.offset())
                if self.world.by[self.name] % 50 == 0:
                    try:
                        consumer.commit()
                    except FencedError as error:
                        self.fenced.append(error)

    def held(self) -> int:
        return len(self.consumer.assignment())


@contextmanager
def serving(world: World) -> Iterator[None]:
    """A coordinator that serves meanwhile."""
    coordinator = Coordinator(world.zookeeper, **world.coordinator)
    coordinator.start()
    try:
        yield
    finally:
        coordinator.stop()
    assert coordinator.error is None


@pytest.fixture(scope="module", params=[KAFKA_VERSION, KAFKA_4_VERSION])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """A ZooKeeper, and a Kafka that registers its topics there, or does not know it."""
    with servers_of(request.param, {}) as servers:
        yield servers


@pytest.fixture
def world(servers: Servers) -> Iterator[World]:
    """A world of the test's own, with a coordinator."""
    world = World(servers)
    with serving(world):
        yield world


def start(stack: ExitStack, reader: Reader) -> Reader:
    """Run the reader until the stack ends."""

    def end() -> None:
        reader.leave.set()
        reader.join(PATIENCE_SECONDS)
        assert not reader.is_alive()

    reader.start()
    stack.callback(end)
    return reader


def share(readers: list[Reader]) -> Callable[[], bool]:
    """Whether all partitions are spread evenly over these."""
    return lambda: (
        sum(r.held() for r in readers) == PARTITIONS
        and min(r.held() for r in readers) >= PARTITIONS // (len(readers) + 1)
    )


def test_a_third_joins_and_the_first_leaves_while_a_producer_writes(world: World) -> None:
    written: dict[int, int] = {}
    producer = threading.Thread(target=lambda: written.update(world.produce()))
    producer.start()
    with ExitStack() as stack:
        stack.callback(producer.join, PATIENCE_SECONDS)
        stack.callback(world.enough.set)
        first, second = (start(stack, Reader(world, name)) for name in ("first", "second"))
        wait_until(share([first, second]), "two share")
        wait_until(lambda: min(world.by["first"], world.by["second"]) > 100, "both read")
        third = start(stack, Reader(world, "third"))
        wait_until(share([first, second, third]), "three share")
        wait_until(lambda: world.by["third"] > 100, "the third reads")
        first.leave.set()
        wait_until(share([second, third]), "two share again")
        world.enough.set()
        producer.join(PATIENCE_SECONDS)
        wait_until(lambda: all(len(world.seen[p]) >= count for p, count in written.items()), "all is read")
    assert world.seen == {partition: list(range(count)) for partition, count in written.items()}
    assert world.stored() == written
    assert [reader.fenced for reader in (first, second, third)] == [[], [], []]


def test_f34_offsets_ahead_of_the_log_and_behind_it_are_reset_by_the_policy_and_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.enough.set()
    for _ in range(5):
        world.produce()
    ahead, behind = TopicPartition(world.topic, 0), TopicPartition(world.topic, 1)
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers}, logger=QUIET)
    (deleted,) = admin.delete_records([NativePartition(*behind, 3)]).values()
    assert deleted.result(PATIENCE_SECONDS).low_watermark == 3
    world.store({ahead.partition: 500, behind.partition: 1})
    seen: dict[int, list[int]] = defaultdict(list)
    with world.consumer() as consumer:

        def all_read() -> bool:
            message = consumer.poll(0.1)
            if message is not None:
                seen[message.partition()].append(message.offset())
            return sum(map(len, seen.values())) >= 5 * PARTITIONS - 3

        wait_until(all_read, "everything that the log has")
    assert seen == {partition: [0, 1, 2, 3, 4] for partition in range(PARTITIONS)} | {1: [3, 4]}
    assert world.stored() == dict.fromkeys(range(PARTITIONS), 5)
    assert f"offset 500 of {ahead} is outside of its log (0 to 5): going on at 0 (earliest)" in caplog.text
    assert f"offset 1 of {behind} is outside of its log (3 to 5): going on at 3 (earliest)" in caplog.text


def test_a_commit_under_a_stop_goes_through_and_lets_the_stop_end(world: World) -> None:
    everything = [TopicPartition(world.topic, partition) for partition in range(PARTITIONS)]
    world.enough.set()
    for _ in range(5):
        world.produce()
    with world.consumer() as first, ExitStack() as stack:
        wait_until(lambda: first.poll(0.1) is not None and len(first.assignment()) == PARTITIONS, "all is held")

        def all_in_work() -> bool:
            for partition in everything:
                first.seek(partition, 0)
            return len(first.poll_many(1000, 1.0)) == 5 * PARTITIONS

        wait_until(all_in_work, "messages of every partition are in work")
        second = start(stack, Reader(world, "second"))
        wait_until(lambda: len(first._positions.wanted()) < PARTITIONS, "a stop has begun")
        assert second.held() == 0
        first.commit()
        assert world.stored() == dict.fromkeys(range(PARTITIONS), 5)
        wait_until(lambda: {len(first.assignment()), second.held()} == {PARTITIONS // 2}, "the two share")
    assert world.seen == {}
    assert world.stored() == dict.fromkeys(range(PARTITIONS), 5)
