"""A cluster that moves from ZooKeeper to KRaft and to Kafka 4, step by step, with a producer and a group."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kazoo.client import KazooClient

from tests.integration.stores_world import Reader
from tests.integration.world import Reports
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import await_partitions, await_replicas, create_topic
from tests.waiting import wait_until
from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedController, EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.embedded.kraft import CONTROLLER_ID, voter
from zkcoord.embedded.server import free_ports
from zkcoord.group_report import group_names, read_group
from zkcoord.logs import EVENTS
from zkcoord.migrate import current
from zkcoord.shell.zk.blocking import Tree

PARTITIONS = 4
PAUSE_SECONDS = 0.02  # between two records
DELIVERY_MS = 300_000  # a restart of the only broker must not cost a record
HEAP_OF_ONE, HEAP_OF_SEVERAL = "512m", "256m"


class Flow(threading.Thread):
    """A producer that goes on over restarts; `written`: how many records each partition has got, as it was told.

    A broker that has just started in KRaft mode may say that the topic does not exist. librdkafka refuses records then:
    they were not written, and are not missed.
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers, self._topic = servers, topic
        self._stop_now = threading.Event()
        self.written: dict[int, int] = {}
        self.partitions = PARTITIONS
        settings = {
            "enable.idempotence": True,
            "delivery.timeout.ms": DELIVERY_MS,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 500,  # without it a topic that was unknown once stays so for minutes
        }
        self._producer = Producer({"bootstrap.servers": servers, **settings}, logger=QUIET)
        self.start()

    def run(self) -> None:
        """Write to all partitions in turn, until told to end."""
        number = 0
        while not self._stop_now.wait(PAUSE_SECONDS):
            partition = number % self.partitions
            with suppress(KafkaException):
                self._producer.produce(self._topic, b"x", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written[message.partition()] = self.written.get(message.partition(), 0) + 1

    def grow(self, partitions: int) -> None:
        """Write to so many partitions from now on."""
        await_partitions(self._producer, self._topic, partitions)
        self.partitions = partitions

    def stop(self) -> None:
        """Tell it to end."""
        self._stop_now.set()

    def end(self) -> dict[int, int]:
        """End it. Return how many records each partition has: all that it was told of, at least."""
        self.stop()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        ends = {n: self._end_of(n) for n in sorted(self.written)}
        assert all(ends[n] >= count > 0 for n, count in self.written.items()), (ends, self.written)
        return ends

    def _end_of(self, number: int) -> int:
        with closing(Consumer({"bootstrap.servers": self._servers, "group.id": "ends"}, logger=QUIET)) as consumer:
            first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, number), PATIENCE_SECONDS)
        assert first == 0
        return int(end)


def _replicated(brokers: int) -> dict[str, str]:
    """The settings of several brokers: what is acknowledged is on two of them."""
    logs = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {"min.insync.replicas": "2", **{f"{log}.replication.factor": str(brokers) for log in logs}}


class KRaftMove:
    """The servers of one move. Each method is one step of an operator's (docs/kraft.md).

    Several brokers are restarted one after the other, each once all replicas of the topic are in sync. Each of them has
    all partitions. `while_away` is called while one of them is away, with its number. Several controllers are a quorum,
    and are restarted one after the other, too.
    """

    def __init__(self, folder: Path, brokers: int = 1, controllers: int = 1) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.old = EmbeddedZooKeeper(fsync=False).start()
        self.zookeeper = self.old.hosts
        ports = free_ports(controllers + brokers)
        self._controllers_at = {CONTROLLER_ID + n: port for n, port in enumerate(ports[:controllers])}
        self._ports = ports[controllers:]
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.group, self.topic = "etl", "clicks"
        self.while_away: Callable[[int], object] = lambda _number: None
        self.controllers: list[EmbeddedController] = []
        self._common = {} if brokers == 1 else _replicated(brokers)
        self._heap = HEAP_OF_ONE if brokers == 1 else HEAP_OF_SEVERAL
        self.brokers: list[KafkaBroker] = [self._in_zookeeper_mode(number, {}) for number in range(brokers)]
        for broker in self.brokers:
            broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.servers}, logger=QUIET)
        create_topic(self.admin, self.topic, PARTITIONS, replicas=brokers)
        self.reports = Reports()
        self._stack.callback(EVENTS.setLevel, EVENTS.level)
        EVENTS.setLevel(logging.INFO)
        EVENTS.addHandler(self.reports)
        self._stack.callback(EVENTS.removeHandler, self.reports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()  # readers and coordinators first: they started last
        for broker in self.brokers:
            broker.stop()
        for controller in self.controllers:
            controller.kill()  # of a quorum the last ones could not end in good order
        self.old.close()

    # -- the brokers' move

    def _roll(self, form: Callable[[int], KafkaBroker]) -> None:
        """Each broker is stopped, and started again in this form."""
        for number, broker in enumerate(self.brokers):
            broker.stop()
            self.while_away(number)
            self.brokers[number] = form(number)
            self.brokers[number].start()
            await_replicas(self.admin, self.topic, len(self.brokers))

    def _in_zookeeper_mode(self, number: int, settings: dict[str, str]) -> KafkaBroker:
        folder, settings = self._folder / f"broker-{number}", self._common | settings
        how = {"port": self._ports[number], "broker_id": number, "heap": self._heap}
        return EmbeddedKafka(self.zookeeper, folder, settings=settings, **how)

    def _in_kraft_mode(self, number: int, version: str) -> KafkaBroker:
        how = {"port": self._ports[number], "broker_id": number, "heap": self._heap}
        where = {"controller": self.controllers[0], "settings": self._common}
        return EmbeddedKRaft(self._folder / f"broker-{number}", version=version, **where, **how)

    def migrate(self) -> None:
        """KRaft controllers take over, and the brokers are restarted for them: both write to ZooKeeper."""
        cluster_id = json.loads(self.look("/cluster/id"))["id"]
        self.controllers = [
            self._controller(node_id, cluster_id, migrate_from=self.zookeeper) for node_id in self._controllers_at
        ]
        for controller in self.controllers:  # one alone is no quorum
            controller.launch()
        for controller in self.controllers:
            controller.await_ready()
        self.zookeeper_mode(self.controllers[0].migrating())
        wait_until(lambda: self.look("/migration"), "the migration has begun")
        wait_until(lambda: json.loads(self.look("/controller"))["kraftControllerEpoch"] > 0, "KRaft leads")

    def _controller(
        self, node_id: int, cluster_id: str, version: str = KAFKA_VERSION, **settings: Any
    ) -> EmbeddedController:
        port, folder = self._controllers_at[node_id], self._folder / "controllers" / str(node_id)
        voters = ",".join(voter(*each) for each in self._controllers_at.items())
        how = {"version": version, **settings}
        return EmbeddedController(cluster_id, folder, port=port, node_id=node_id, voters=voters, **how)

    def _leader(self) -> int:
        """The id of the controller that leads, as those that run have written it down; -1 while none does."""
        running = [each for each in self.controllers if each.running]
        paths = [each.data_dir / "data" / "__cluster_metadata-0" / "quorum-state" for each in running]
        states = [json.loads(path.read_text("utf-8")) for path in paths]
        newest = max(states, key=lambda state: (state["leaderEpoch"], state["leaderId"]))
        return int(newest["leaderId"])

    def kill_leading_controller(self) -> EmbeddedController:
        """Kill the controller that leads. Return it, once another one leads."""
        wait_until(lambda: self._leader() >= 0, "a controller leads")
        leader = self._leader()
        (killed,) = [each for each in self.controllers if each.node_id == leader]
        killed.kill()
        wait_until(lambda: self._leader() not in (leader, -1), "another controller leads")
        return killed

    def zookeeper_mode(self, settings: dict[str, str] | None = None) -> None:
        """The brokers are restarted in ZooKeeper mode."""
        self._roll(lambda number: self._in_zookeeper_mode(number, settings or {}))

    def kraft_mode(self, version: str = KAFKA_VERSION) -> None:
        """The brokers are restarted without ZooKeeper."""
        self._roll(lambda number: self._in_kraft_mode(number, version))

    def give_up(self) -> None:
        """The way back from KRaft mode: the brokers are restarted with ZooKeeper, led by the controllers. Then these
        are stopped, their nodes are removed, and the brokers, restarted once more, are led by one of themselves."""
        self.zookeeper_mode(self.controllers[0].migrating())
        for controller in self.controllers:
            controller.stop()
        self.controllers = []
        (self._folder / "controllers").rename(self._folder / "controllers-given-up")
        self.remove("/controller", "/migration")
        self.zookeeper_mode()

    def finish(self, version: str = KAFKA_VERSION) -> None:
        """Each controller is restarted without ZooKeeper, from which there is no way back."""
        for number, before in enumerate(self.controllers):
            before.stop()
            self.controllers[number] = self._controller(before.node_id, before.cluster_id, version)
            self.controllers[number].start()

    def to_kafka_4(self) -> None:
        """Controllers and brokers are restarted with the next version."""
        self.finish(KAFKA_4_VERSION)
        self.kraft_mode(KAFKA_4_VERSION)

    def grow(self, partitions: int) -> None:
        """Give the topic more partitions."""
        growing = [NewPartitions(self.topic, partitions)]
        self.admin.create_partitions(growing)[self.topic].result(PATIENCE_SECONDS)

    # -- ZooKeeper

    def _with_client(self, act: Callable[[KazooClient], Any]) -> Any:
        client = KazooClient(self.old.hosts)
        client.start(PATIENCE_SECONDS)
        try:
            return act(client)
        finally:
            client.stop()
            client.close()

    def look(self, path: str) -> str:
        """A node's data, "" if there is none."""

        def read(client: KazooClient) -> str:
            return str(client.get(path)[0].decode()) if client.exists(path) else ""

        return str(self._with_client(read))

    def make(self, path: str, text: str) -> None:
        """Create a node."""
        self._with_client(lambda client: client.create(path, text.encode()))

    def remove(self, *paths: str) -> None:
        """Remove these nodes, and all below them; one that is not there is left out."""

        def remove(client: KazooClient) -> None:
            for path in paths:
                if client.exists(path):
                    client.delete(path, recursive=True)

        self._with_client(remove)

    # -- zkcoord

    def coordinator(self, **settings: Any) -> Coordinator:
        """A coordinator that serves the tree."""
        serving = threading.Event()
        coordinator = Coordinator(self.zookeeper, on_serving=lambda _number, _epoch: serving.set(), **settings)
        coordinator.start()
        assert serving.wait(PATIENCE_SECONDS)
        self._stack.callback(coordinator.stop)
        return coordinator

    def reader(self) -> Reader:
        """A member of the group that reads, and commits what it has read."""
        reader = Reader(self)  # type: ignore[arg-type]
        self.at_end(reader.leave)
        return reader

    def at_end(self, call: Callable[[], object]) -> None:
        """Call it when the scene ends, before what was started earlier is ended."""
        self._stack.callback(call)

    def await_settled(self, members: int) -> None:
        """Wait until the group consists of so many, each of which owns its share."""

        def settled() -> bool:
            if self.group not in group_names(tree, layout):
                return False
            report = read_group(tree, layout, self.group)
            owners = {owner.thread for owner in report.view.owners.values()}
            return report.settled and len(report.view.members) == members == len(owners)

        with Tree(self.zookeeper) as tree:
            schema = current(tree)
            assert schema is not None
            layout = schema.place
            wait_until(settled, f"{members} share the group")

    def flow(self) -> Flow:
        """A producer that goes on until it is ended."""
        flow = Flow(self.servers, self.topic)
        self._stack.callback(flow.stop)
        return flow

    def another_ensemble(self) -> str:
        """Start a ZooKeeper for coordination alone."""
        return self._stack.enter_context(EmbeddedZooKeeper(fsync=False)).hosts
