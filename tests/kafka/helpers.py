"""A broker that librdkafka plays, and a membership whose coordinator the test plays."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from confluent_kafka import Producer

from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError
from zkcoord.kafka.client import Message
from zkcoord.kafka.consumer import KafkaConsumer

PATIENCE_SECONDS = 120.0  # only a failure takes so long
TOPICS = itertools.count(1000)  # all numbers have four digits, so that names sort in the order in which they are made
Open = Callable[..., KafkaConsumer]  # the fixture `open_consumer`
QUIET = logging.getLogger("test.librdkafka")  # for clients of the test itself, whose log is ignored
QUIET.propagate = False
QUIET.addHandler(logging.NullHandler())


class Broker:
    """librdkafka's mock cluster: one broker, topics of four partitions made by the first message, ~5 MB for each."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1}, logger=logging.getLogger("mock"))
        (broker,) = self._producer.list_topics(timeout=PATIENCE_SECONDS).brokers.values()
        self.bootstrap_servers = f"{broker.host}:{broker.port}"

    def topic(self, counts: Iterable[int] = (20,)) -> str:
        """Make a topic whose partitions have these numbers of messages. The value of a message is its offset."""
        topic = f"clicks-{next(TOPICS)}"
        for partition, count in enumerate(counts):
            self.produce(TopicPartition(topic, partition), [str(offset).encode() for offset in range(count)])
        return topic

    def produce(self, partition: TopicPartition, values: Iterable[bytes]) -> None:
        """Write these messages, one after the other."""
        for value in values:
            self._producer.produce(partition.topic, value, partition=partition.partition)
        assert self._producer.flush(PATIENCE_SECONDS) == 0


class Coordinator:
    """A membership for the consumer under test; the test gives and takes partitions through it.

    Callbacks run on one worker thread, as zkcoord.Consumer runs them. `store` has the committed offsets.
    """

    def __init__(self) -> None:
        self.store: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.released: list[dict[TopicPartition, int]] = []  # final offsets given before the stop was over
        self.held: set[TopicPartition] = set()
        self.begun: set[TopicPartition] = set()  # records of these were handed out
        self.starts = 0  # how many so far
        self.started: dict[TopicPartition, int] = {}  # partition -> the number of its last start
        self.lease = True
        self.error: BaseException | None = None
        self.consumer_id: str | None = "g_h-1-aaaaaaaa"
        self.refusal: Exception | None = None  # the error that the next commit raises
        self.gate = threading.Event()  # a commit waits for it
        self.gate.set()
        self.committing = threading.Event()
        self.joined = self.left = 0
        self.settings: dict[str, Any] = {}
        self._worker: ThreadPoolExecutor | None = None

    def __call__(self, zookeeper: str, group: str, topics: Any, **settings: Any) -> Coordinator:
        """Return itself as the membership: the consumer calls this as a factory."""
        self.settings = {"zookeeper": zookeeper, "group": group, "topics": topics, **settings}
        return self

    # called by the consumer

    def start(self) -> None:
        self.joined += 1
        self._worker = ThreadPoolExecutor(1, "membership")

    def stop(self) -> None:
        self.left += 1
        assert self._worker is not None
        self.take(sorted(self.held)).result(PATIENCE_SECONDS)
        self._worker.shutdown()

    def commit(self, offsets: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int] | None = None) -> None:
        self.committing.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        if not self.held.issuperset(offsets):
            raise FencedError("not the owner")
        numbers = self.started if starts is None else starts
        if any(numbers[partition] != self.started[partition] for partition in offsets):
            raise FencedError("decided before it was started again")
        self.commits.append(dict(offsets))
        self.store.update(offsets)

    def stopped(self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int]) -> None:
        self.held.difference_update(partitions)
        self.store.update(offsets)
        self.released.append(dict(offsets))

    def report(self, progress: int, lag: int) -> None:
        """Note the progress that the consumer reports."""
        self.reported = (progress, lag)

    def reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that records of these partitions are handed out."""
        self.begun.update(partitions)

    def join_when(self, ready: Callable[[], bool], stop_needs_ms: int = 0) -> None:
        self.stop_needs_ms = stop_needs_ms

    def allowed(self, partition: TopicPartition) -> bool:
        return self.lease and partition in self.held

    # called by the test

    def give(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start these partitions; return when the callback has returned."""

        def run() -> None:
            self.held.update(positions)
            self.starts += 1
            self.started |= dict.fromkeys(positions, self.starts)
            self.settings["on_start"](Starting(positions, self.starts))

        self._call(run).result(PATIENCE_SECONDS)

    def take(self, partitions: Iterable[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        """Stop these partitions. The future has the final offsets, which are stored first."""
        gone = tuple(partitions)

        def run() -> dict[TopicPartition, int]:
            finals = dict(self.settings["on_stop"](gone))
            self.store.update(finals)
            self.held.difference_update(gone)
            return finals

        return self._call(run)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Take these partitions away as lost; return when the callback has returned."""
        gone = tuple(partitions)

        def run() -> None:
            self.held.difference_update(gone)
            self.settings["on_lost"](gone)

        self._call(run).result(PATIENCE_SECONDS)

    def _call(self, run: Callable[[], Any]) -> Future[Any]:
        assert self._worker is not None
        return self._worker.submit(run)


def read(consumer: KafkaConsumer, count: int) -> list[tuple[int, int]]:
    """Read the next `count` messages; return partition and offset of each."""
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        message = consumer.poll(0.2)
        if message is not None:
            found.append(where(message))
    return found


def where(message: Message) -> tuple[int, int]:
    """Return partition and offset of a message."""
    return message.partition(), message.offset()
