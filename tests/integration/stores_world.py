"""A broker and a ZooKeeper whose groups are moved between offset stores, members that process numbers, and Kafka's own
tools."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from tests import waiting
from tests.integration.brokers import servers_of
from tests.integration.world import Reports
from tests.kafka.commits import commit_as_stranger
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.coordinator import Coordinator
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit
from zkcoord.embedded.artifacts import KAFKA_VERSION
from zkcoord.errors import ZkcoordError
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.logs import EVENTS
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.verdict import Verdict
from zkcoord.offsets.verify import verify
from zkcoord.operating.requesting import edit_record
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, SCHEMA, TOPICS
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.status import decode_status

NUMBERS = itertools.count(1)
REBALANCE_MS = 15_000  # Kafka is given up after a third
SESSION_MS = 6_000


class Cluster:
    """Servers, a coordinator, and what is needed to look at them.

    `group`, `topic`: a fresh one for each test. `source`: with what a coordinator is started here.
    """

    def __init__(self, settings: Mapping[str, str], *, version: str = KAFKA_VERSION) -> None:
        self._stack = ExitStack()
        self.zookeeper, self.kafka, self.source = self._stack.enter_context(servers_of(version, settings))
        self.servers = self.kafka.bootstrap_servers
        self.tree = self._stack.enter_context(Tree(self.zookeeper))
        self.connect()
        self.admin = AdminClient({"bootstrap.servers": self.servers}, logger=QUIET)
        self.producer = Producer({"bootstrap.servers": self.servers}, logger=QUIET)
        coordinator = Coordinator(self.zookeeper, **self.source)
        coordinator.start()
        self._stack.callback(coordinator.stop)
        self.reports = Reports()
        EVENTS.addHandler(self.reports)
        self._stack.callback(EVENTS.removeHandler, self.reports)
        self.begin(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def connect(self) -> None:
        """Look at Kafka with a new client: one that had no answer may not find a broker again for long."""
        self.client = self._stack.enter_context(KafkaClient(self.servers))
        self.commits = KafkaCommits(self.client)

    def begin(self, partitions: int) -> None:
        """A new group, and a new topic with so many partitions."""
        number = next(NUMBERS)
        self.group, self.topic = f"etl-{number}", f"clicks-{number}"
        self.reports.seen.clear()
        if partitions:
            self.create(partitions)

    def create(self, partitions: int) -> None:
        """Create the topic."""
        create_topic(self.admin, self.topic, partitions)

    def delete(self) -> None:
        """Delete the topic, and wait until it may be created again."""
        self.admin.delete_topics([self.topic])[self.topic].result(PATIENCE_SECONDS)
        # of Kafka 4 ZooKeeper knows nothing: there the topic is gone with the answer
        nodes = [Read(f"{TOPICS}/{self.topic}"), Read(f"/admin/delete_topics/{self.topic}")]
        wait_until(lambda: not any(node.exists for node in self.tree.read(nodes)), "the topic is deleted")

    def produce(self, count: int, *partitions: int) -> None:
        """Write so many records into each of these."""
        for partition in partitions:
            for _ in range(count):
                self.producer.produce(self.topic, b"x", partition=partition)
        assert self.producer.flush(PATIENCE_SECONDS) == 0

    def partition(self, number: int) -> TopicPartition:
        """One of the topic's."""
        return TopicPartition(self.topic, number)

    # -- the tool

    def move(self, *stores: str) -> None:
        """Move the group, step by step, each of which ends when all members say so."""
        for store in stores:
            record = edit_record(
                self.tree,
                DRAFT,
                self.group,
                lambda now, store=store: (  # type: ignore[misc]
                    now if now.store_name == store else replace(now, store_name=store, store_step=now.store_step + 1)
                ),
                new=True,
            )
            wait_until(lambda record=record: self._told(record), f"{self.group} has come to {store}")  # type: ignore[misc]

    def _told(self, record: GroupRecord) -> bool:
        ids = DRAFT.ids(self.group)
        (listed,) = self.tree.read([Read(ids, Kind.CHILDREN)])
        nodes = self.tree.read([Read(DRAFT.channel(self.group, consumer)) for consumer in listed.children])
        told = [decode_status(node.data) for node in nodes if node.exists]
        return all((said.store_name, said.store_step) == (record.store_name, record.store_step) for said in told)

    # -- what stands where

    def nodes(self) -> dict[int, int]:
        """The offsets in ZooKeeper."""
        (listed,) = self.tree.read([Read(f"{DRAFT.offsets(self.group)}/{self.topic}", Kind.CHILDREN)])
        read = self.tree.read([Read(DRAFT.offset(self.group, self.partition(int(n)))) for n in listed.children])
        return {int(n): int(node.data) for n, node in zip(listed.children, read, strict=True) if node.data}

    def in_kafka(self) -> dict[int, KafkaCommit]:
        """The commits in Kafka."""
        told = self.commits.read([self.group])
        if told.unknown:
            self.connect()
        return {p.partition: c for p, c in told.found.get(self.group, {}).items()}

    def offsets_in_kafka(self) -> dict[int, int]:
        """Their offsets."""
        return {number: commit.offset for number, commit in self.in_kafka().items()}

    def verdicts(self) -> dict[int, tuple[Verdict, int | None]]:
        """What `offsets verify` says, and the offset that counts."""
        tree = decode_schema(self.tree.read([Read(SCHEMA)])[0].data).tree_id
        (found,) = verify(self.tree.read, self.commits, known_logs(self.client), DRAFT, [self.group], tree=tree)
        return {row.partition.partition: (row.judged.verdict, row.judged.counts.offset) for row in found.partitions}

    def commit_as_stranger(self, offsets: Mapping[int, int]) -> None:
        """As a program without our metadata."""
        commit_as_stranger(self.admin, self.group, self.topic, offsets)

    def set_node(self, number: int, offset: int) -> None:
        """As somebody with an editor."""
        path = DRAFT.offset(self.group, self.partition(number))
        self._edit(lambda client: client.set(path, str(offset).encode()))

    def _edit(self, edit: Callable[[KazooClient], object]) -> None:
        client = KazooClient(self.zookeeper)
        client.start(PATIENCE_SECONDS)
        try:
            edit(client)
        finally:
            client.stop()
            client.close()


class Reader(threading.Thread):
    """A service on a KafkaConsumer: notes each offset that it is handed, and commits after each poll.

    `zookeeper`: another tree than the cluster's.
    """

    def __init__(self, cluster: Cluster, zookeeper: str = "", **settings: Any) -> None:
        super().__init__(daemon=True)
        self._leave, self._may_poll, self._stands = threading.Event(), threading.Event(), threading.Event()
        self._may_poll.set()
        self._lock = threading.Lock()
        self.seen: dict[int, list[int]] = {}
        self.failed: list[ZkcoordError] = []
        self.commits = True
        self.consumer = KafkaConsumer(
            *(zookeeper or cluster.zookeeper, cluster.servers, cluster.group, [cluster.topic]),
            from_beginning=True,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            **settings,
        )
        self.start()

    def run(self) -> None:
        """Read until told to leave."""
        with self.consumer as consumer:
            while not self._leave.is_set():
                if not self._may_poll.is_set():
                    self._stands.set()
                    self._may_poll.wait()
                messages = consumer.poll_many(50, 0.1)
                with self._lock:
                    for message in messages:
                        self.seen.setdefault(message.partition(), []).append(message.offset())
                if messages and self.commits:
                    try:
                        consumer.commit()
                    except ZkcoordError as error:
                        self.failed.append(error)

    def halt(self) -> None:
        """Poll nothing more until `go_on`, and keep the partitions; returns once no poll is under way."""
        self._stands.clear()
        self._may_poll.clear()
        assert self._stands.wait(PATIENCE_SECONDS)

    def go_on(self) -> None:
        """Poll again."""
        self._may_poll.set()

    def has(self, number: int, offset: int) -> bool:
        """True once it has read that far."""
        with self._lock:
            return bool(self.seen.get(number)) and self.seen[number][-1] >= offset - 1

    def offsets(self, number: int) -> list[int]:
        """What it has read of a partition, in order."""
        with self._lock:
            return list(self.seen.get(number, ()))

    def leave(self) -> None:
        """Leave cleanly."""
        self._leave.set()
        self._may_poll.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()


def soon(
    cluster: Cluster, what: str, holds: Callable[[], bool], patience_seconds: float = waiting.PATIENCE_SECONDS
) -> None:
    """Wait for it; a failure shows where the offsets stand."""
    try:
        wait_until(holds, what, patience_seconds)
    except AssertionError as error:
        shown = {"verdicts": str(cluster.verdicts()), "events": cluster.reports.seen[-20:]}
        raise AssertionError(f"{error}: {json.dumps(shown, default=str)}") from error
