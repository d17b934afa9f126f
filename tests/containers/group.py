"""A group of plain consumers whose every callback is checked: who holds what, and from which offset."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from zkcoord import Consumer, Coordinator, TopicPartition
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Read, parents
from zkcoord.tree.writes import CreateNode, Transaction

SESSION_MS = 8_000
REBALANCE_MS = 20_000
DEADLINE_S = 60.0
TURN_S = 0.01
TOPIC = "clicks"
PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(12))
READ_IN_A_TENURE = 10  # what each holder of a partition commits when it stops


class Ledger:
    """What the callbacks of all members together have said. `wrong` collects what must never be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.holder: dict[TopicPartition, str] = {}
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.wrong: list[str] = []

    def start(self, name: str, positions: Mapping[TopicPartition, int]) -> None:
        """`name` was told to start."""
        with self._lock:
            for partition, offset in positions.items():
                if partition in self.holder:
                    self.wrong.append(f"{name} starts {partition}, which {self.holder[partition]} holds")
                if offset != self.position[partition]:
                    self.wrong.append(f"{name} starts {partition} at {offset}, not {self.position[partition]}")
                self.holder[partition] = name

    def stop(self, name: str, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        """`name` was told to stop; where it ended."""
        self.lose(name, partitions)
        with self._lock:
            for partition in partitions:
                self.position[partition] += READ_IN_A_TENURE
            return {partition: self.position[partition] for partition in partitions}

    def lose(self, name: str, partitions: tuple[TopicPartition, ...]) -> None:
        """`name` was told that it has lost these."""
        with self._lock:
            for partition in partitions:
                if self.holder.pop(partition, None) != name:
                    self.wrong.append(f"{name} is told to stop {partition}, which it does not hold")

    def held(self) -> dict[str, set[TopicPartition]]:
        """Member -> what it holds, by its callbacks."""
        held: dict[str, set[TopicPartition]] = {}
        with self._lock:
            for partition, name in self.holder.items():
                held.setdefault(name, set()).add(partition)
        return held


class Group:
    """Coordinators and members in one chroot of one server; all leave at the end."""

    def __init__(self, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        self.ledger = Ledger()
        self.members: dict[str, Consumer] = {}
        self.elections: list[tuple[str, int]] = []  # coordinator, epoch
        self._coordinators: dict[str, Coordinator] = {}
        document = {"version": 1, "partitions": {str(p.partition): [1] for p in PARTITIONS}}
        topic = f"/brokers/topics/{TOPIC}"
        nodes = [*(CreateNode(path) for path in parents(topic)), CreateNode(topic, json.dumps(document).encode())]
        with Tree(zookeeper) as tree:
            assert not tree.commit(Transaction(writes=tuple(nodes))).reason

    def coordinate(self, name: str) -> None:
        """Start a coordinator."""
        elections = self.elections
        coordinator = Coordinator(
            self.zookeeper,
            session_timeout_ms=SESSION_MS,
            on_serving=lambda _number, epoch: elections.append((name, epoch)),
        )
        self._coordinators[name] = coordinator
        coordinator.start()

    def end_coordinator(self, name: str) -> None:
        """Stop it, whether ZooKeeper hears of it or not."""
        self._coordinators.pop(name).stop()

    def join(self, name: str) -> None:
        """Start a member."""
        consumer = Consumer(
            *(self.zookeeper, "g", [TOPIC]),
            on_start=lambda positions: self.ledger.start(name, positions),
            on_stop=lambda partitions: self.ledger.stop(name, partitions),
            on_lost=lambda partitions: self.ledger.lose(name, partitions),
            reset=lambda partitions: dict.fromkeys(partitions, 0),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        self.members[name] = consumer
        consumer.start()

    def leave(self, name: str) -> None:
        """Stop a member."""
        self.members.pop(name).stop()

    def ids(self) -> dict[str, str | None]:
        """Member -> its present consumer id."""
        return {name: consumer.consumer_id for name, consumer in self.members.items()}

    def allowed(self) -> dict[str, set[TopicPartition]]:
        """Member -> what it may read now, if anything; notes a partition that two may read at one moment."""
        found = {name: {p for p in PARTITIONS if c.allowed(p)} for name, c in self.members.items()}
        for partition in PARTITIONS:
            names = [name for name in found if partition in found[name]]
            if len(names) > 1 and all(self.members[name].allowed(partition) for name in names):  # still, all of them
                self.ledger.wrong.append(f"{names} may all read {partition}")
        return {name: partitions for name, partitions in found.items() if partitions}

    def settled(self) -> bool:
        """Whether all partitions are held by these members, evenly, and everything held may be read."""
        held = self.ledger.held()
        share = len(PARTITIONS) // len(self.members)
        even = held.keys() == self.members.keys() and {len(partitions) for partitions in held.values()} == {share}
        return self.allowed() == held and even

    def wait(self, holds: Callable[[], bool], what: str, patience_s: float = DEADLINE_S) -> None:
        """Return as soon as it holds; what nobody may do is looked for meanwhile."""
        deadline = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < deadline, f"waited too long: {what}; held {self.ledger.held()}, {self.ids()}"
            self.allowed()
            threading.Event().wait(TURN_S)
        assert self.ledger.wrong == []

    def owners(self) -> dict[TopicPartition, str]:
        """Partition -> the member that the tree names as its owner."""
        names = {consumer_id: name for name, consumer_id in self.ids().items()}
        with Tree(self.zookeeper) as tree:
            nodes = tree.read([Read(DRAFT.owner("g", partition)) for partition in PARTITIONS])
        threads = [node.data.decode().rpartition("-")[0] for node in nodes]
        return {p: names.get(thread, thread) for p, thread in zip(PARTITIONS, threads, strict=True)}

    def registered(self) -> set[str]:
        """The consumer ids that are registered."""
        with Tree(self.zookeeper) as tree:
            return set(tree.read([Read(DRAFT.ids("g"), Kind.CHILDREN)])[0].children)

    def offsets(self) -> dict[TopicPartition, int]:
        """The committed offsets."""
        with Tree(self.zookeeper) as tree:
            nodes = tree.read([Read(DRAFT.offset("g", partition)) for partition in PARTITIONS])
        return {partition: int(node.data) for partition, node in zip(PARTITIONS, nodes, strict=True)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.members):
            self.leave(name)
        for name in list(self._coordinators):
            self.end_coordinator(name)
        if kind is None:
            assert self.ledger.wrong == []
