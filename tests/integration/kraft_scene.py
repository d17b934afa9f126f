"""A cluster that moves from ZooKeeper to KRaft and to Kafka 4, step by step, with a producer and a group."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewPartitions
from kazoo.client import KazooClient

from tests.integration import kraft_state
from tests.integration.kraft_flow import PARTITIONS, Flow
from tests.integration.stores_world import Reader
from tests.integration.world import Reports
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import await_replicas, create_topic
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

HEAP_OF_ONE, HEAP_OF_SEVERAL = "512m", "256m"


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
        self._jvm_options = kraft_state.talkative(folder)
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
        self._open = False  # the move has begun, and the controllers still write to ZooKeeper
        self._flows: list[Flow] = []
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

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        try:
            if error is not None:
                error.add_note(self._state())
        finally:
            self._close()

    def _close(self) -> None:
        try:
            self._stack.close()  # readers and coordinators first: they started last
        finally:
            for broker in self.brokers:
                broker.stop()
            for controller in self.controllers:
                controller.kill()  # of a quorum the last ones could not end in good order
            self.old.close()

    def _state(self) -> str:
        """What a failed test is told beside its error."""
        lines = ["ZooKeeper has ended"]
        if self.old.running:
            lines = self._with_client(lambda client: kraft_state.in_zookeeper(client, self.topic))
        lines += kraft_state.told_by_brokers(self.admin, self.topic)
        lines += kraft_state.ends_of_logs((*self.brokers, *self.controllers))
        return "\n".join([*lines, "the producer:", *(line for flow in self._flows for line in list(flow.recent))])

    # -- the brokers' move

    def _roll(self, form: Callable[[int], KafkaBroker]) -> None:
        """Each broker is stopped, and started again in this form."""
        for number, broker in enumerate(self.brokers):
            broker.stop()
            self.while_away(number)
            self.brokers[number] = form(number)
            self.brokers[number].start()
            await_replicas(self.admin, self.topic, len(self.brokers))
            for flow in self._flows:  # a broker may tell that it leads before it was told so itself
                flow.await_more()

    def _in_zookeeper_mode(self, number: int, settings: dict[str, str]) -> KafkaBroker:
        folder, settings = self._folder / f"broker-{number}", self._common | settings
        return EmbeddedKafka(self.zookeeper, folder, settings=settings, **self._broker(number))

    def _in_kraft_mode(self, number: int, version: str) -> KafkaBroker:
        where: dict[str, Any] = {"controller": self.controllers[0], "settings": self._common}
        return EmbeddedKRaft(self._folder / f"broker-{number}", version=version, **where, **self._broker(number))

    def _broker(self, number: int) -> dict[str, Any]:
        how = {"port": self._ports[number], "broker_id": number, "heap": self._heap}
        return {**how, "jvm_options": self._jvm_options}

    def start_controllers(self) -> None:
        """The KRaft controllers run, and wait for the brokers."""
        cluster_id = json.loads(self.look("/cluster/id"))["id"]
        self.controllers = [
            self._controller(node_id, cluster_id, migrate_from=self.zookeeper) for node_id in self._controllers_at
        ]
        for controller in self.controllers:  # one alone is no quorum
            controller.launch()
        for controller in self.controllers:
            controller.await_ready()

    def migrate(self) -> None:
        """KRaft controllers take over, and the brokers are restarted for them: both write to ZooKeeper."""
        if not self.controllers:
            self.start_controllers()
        self.zookeeper_mode(self.controllers[0].migrating())
        wait_until(lambda: self.look("/migration"), "the migration has begun")
        wait_until(lambda: self.kraft_epoch() > 0, "KRaft leads")
        self._open = True

    def kraft_epoch(self) -> int:
        """The epoch of the controller that leads the brokers, as ZooKeeper has it; -1 if one of them does."""
        return int(json.loads(self.look("/controller"))["kraftControllerEpoch"])

    def elect_anew(self, epoch: int) -> None:
        """Restart the only controller until it leads in this epoch."""
        (controller,) = self.controllers
        while (before := self._elected())[0] < epoch:
            controller.kill()
            controller.start()
            wait_until(partial(self._elected_after, before), "the controller leads again")

    def _elected_after(self, before: tuple[int, int]) -> bool:
        epoch, leader = self._elected()
        return epoch > before[0] and leader >= 0

    def _controller(
        self, node_id: int, cluster_id: str, version: str = KAFKA_VERSION, **settings: Any
    ) -> EmbeddedController:
        port, folder = self._controllers_at[node_id], self._folder / "controllers" / str(node_id)
        voters = ",".join(voter(*each) for each in self._controllers_at.items())
        how = {"version": version, "jvm_options": self._jvm_options, **settings}
        return EmbeddedController(cluster_id, folder, port=port, node_id=node_id, voters=voters, **how)

    def _elected(self) -> tuple[int, int]:
        """The epoch and the id of the controller that leads, as those that run have written it down; no id: -1."""
        running = [each for each in self.controllers if each.running]
        paths = [each.data_dir / "data" / "__cluster_metadata-0" / "quorum-state" for each in running]
        states = [json.loads(path.read_text("utf-8")) for path in paths]
        return max((state["leaderEpoch"], state["leaderId"]) for state in states)

    def _leader(self) -> int:
        return self._elected()[1]

    def kill_leading_controller(self) -> EmbeddedController:
        """Kill the controller that leads. Return it, once another one leads, and writes to ZooKeeper if the move is
        open: until then no topic may be given partitions (docs/kraft.md)."""
        wait_until(lambda: self._leader() >= 0, "a controller leads")
        leader = self._leader()
        (killed,) = [each for each in self.controllers if each.node_id == leader]
        before = self._written_until() if self._open else None
        killed.kill()
        wait_until(lambda: self._leader() not in (leader, -1), "another controller leads")
        if before is not None:
            wait_until(lambda: self._written_until()[0] > before[0], "it writes to ZooKeeper")
        return killed

    def zookeeper_mode(self, settings: dict[str, str] | None = None) -> None:
        """The brokers are restarted in ZooKeeper mode."""
        self._roll(lambda number: self._in_zookeeper_mode(number, settings or {}))

    def kraft_mode(self, version: str = KAFKA_VERSION) -> None:
        """The brokers are restarted without ZooKeeper."""
        self._roll(lambda number: self._in_kraft_mode(number, version))

    def give_up(self) -> None:
        """The way back from KRaft mode: the brokers are restarted with ZooKeeper, led by the controllers, and leave
        these."""
        self.await_written()
        self.zookeeper_mode(self.controllers[0].migrating())
        self.leave_controllers()

    def leave_controllers(self) -> None:
        """The way back from brokers with ZooKeeper: the controllers are stopped, and their nodes are removed. One of
        the brokers leads, and they are restarted without what names the controllers."""
        self.await_written()
        for controller in self.controllers:
            controller.stop()
        self.controllers, self._open = [], False
        (self._folder / "controllers").rename(self._folder / "controllers-given-up")
        self._take_zookeeper_back()
        self.zookeeper_mode()

    def await_written(self) -> None:
        """Wait until ZooKeeper has all that the controllers know by now.

        They write `/migration` after all else, also when nothing has changed, several times in a second or two.
        """
        before = self._written_until()
        wait_until(lambda: self._written_until() > before, "the controllers write to ZooKeeper")

    def _written_until(self) -> tuple[int, int]:
        written = json.loads(self.look("/migration"))
        return written["kraft_metadata_epoch"], written["kraft_metadata_offset"]

    def _take_zookeeper_back(self) -> None:
        """Remove the controllers' nodes, and wait until one of the brokers leads, and has told all of them.

        A broker that is stopped before it was told asks the controllers for leave, for five minutes. One that leads
        elects nobody for a partition that was written under a greater epoch than its own, which is the next one after
        `/controller_epoch`; the controllers wrote theirs.
        """
        self.write("/controller_epoch", str(max(self.kraft_epoch(), int(self.look("/controller_epoch")))))
        self.remove("/controller", "/migration")
        own = {broker.broker_id for broker in self.brokers}
        wait_until(lambda: kraft_state.leaders_told(self.brokers) <= own, "one of the brokers leads all of them")

    def finish(self, version: str = KAFKA_VERSION) -> None:
        """Each controller is restarted without ZooKeeper, from which there is no way back."""
        self._open = False
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

    def write(self, path: str, text: str) -> None:
        """Change a node's data."""
        self._with_client(lambda client: client.set(path, text.encode()))

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
        self._flows.append(flow)
        self._stack.callback(flow.stop)
        return flow

    def another_ensemble(self) -> str:
        """Start a ZooKeeper for coordination alone."""
        return self._stack.enter_context(EmbeddedZooKeeper(fsync=False)).hosts
