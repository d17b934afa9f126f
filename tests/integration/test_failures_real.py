"""Failure cases on a real ZooKeeper (design, section 10): a coordinator that stands still too long, a black hole.

Who read what, and until when, is judged from the event logs of the processes: all of one machine's monotonic clock.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Self

import pytest

from tests.shell.zk_world import Proxy
from zkcoord import Coordinator
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.logs import EVENTS, plain
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import CANDIDATES, DRAFT, EPOCH, TOPICS
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, DeleteNode, Transaction

pytestmark = pytest.mark.zookeeper

PATIENCE_SECONDS = 40.0
PARTITIONS = 4
SESSION_MS = 4_000
GROUP = "g"
MULTI = 14  # ZooKeeper's number of the request

COORDINATOR = """
import logging, sys
from zkcoord import Coordinator
from zkcoord.logs import configure

configure("json", logging.INFO)
Coordinator(sys.argv[1], session_timeout_ms=int(sys.argv[2])).run()
"""

READER = """
import logging, sys, threading, time
from zkcoord import Consumer
from zkcoord.logs import configure, emit

positions, lock = {}, threading.Lock()

def start(given):
    with lock:
        positions.update(given)

def stop(partitions):
    with lock:
        return {p: positions.pop(p) for p in partitions if p in positions}

configure("json", logging.DEBUG)
consumer = Consumer(
    sys.argv[1], "g", ["t"], on_start=start, on_stop=stop, on_lost=stop,
    reset=lambda partitions: dict.fromkeys(partitions, 0), session_timeout_ms=int(sys.argv[2]),
)
consumer.start()
pace = threading.Event()
while not pace.wait(0.003):
    with lock:
        for p in sorted(positions):
            now_ms = time.monotonic_ns() // 1_000_000
            if consumer.allowed(p):
                emit("fetched", partition=p, first=positions[p], last=positions[p], mono_ms=now_ms)
                positions[p] += 1
"""

Event = dict[str, Any]


def wait_until(holds: Callable[[], Any], what: str) -> None:
    """Return as soon as `holds()`; fail after the deadline."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        threading.Event().wait(0.02)


def now_ms() -> int:
    """The clock of the event logs."""
    return time.monotonic_ns() // 1_000_000


class Child:
    """A process whose log of events is kept."""

    def __init__(self, code: str, zookeeper: str, session_timeout_ms: int = SESSION_MS) -> None:
        command = [sys.executable, "-c", code, zookeeper, str(session_timeout_ms)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.events: list[Event] = []
        self.noise: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def of(self, *names: str, since_ms: int = 0) -> list[Event]:
        """The events of these names."""
        return [e for e in list(self.events) if e["event"] in names and e["mono_ms"] >= since_ms]

    def wait(self, name: str, since_ms: int = 0) -> Event:
        """The first event of this name since then."""
        wait_until(lambda: self.of(name, since_ms=since_ms) or self.process.poll() is not None, name)
        assert self.of(name, since_ms=since_ms), f"ended with {self.process.poll()}: {self.noise[-20:]}"
        return self.of(name, since_ms=since_ms)[0]

    def reads(self) -> set[str]:
        """The partitions that it has read within the last second."""
        return {e["partition"] for e in self.of("fetched", since_ms=now_ms() - 1_000)}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        self._thread.join(PATIENCE_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.noise.append(line)


class Scene:
    """One chroot with a topic, the processes in it, and a look at the tree."""

    def __init__(self, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        self.tree = Tree(self.zookeeper)
        self.stack.callback(self.tree.close)
        topic = json.dumps({"version": 1, "partitions": {str(n): [1] for n in range(PARTITIONS)}}).encode()
        self.write(CreateNode("/brokers"), CreateNode(TOPICS), CreateNode(f"{TOPICS}/t", topic))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def child(self, code: str, zookeeper: str = "", session_timeout_ms: int = SESSION_MS) -> Child:
        """Start a process; it is killed at the end."""
        child = Child(code, zookeeper or self.zookeeper, session_timeout_ms)
        self.stack.callback(child.close)
        self.stack.callback(child.signal, signal.SIGCONT)
        return child

    def write(self, *writes: CreateNode | DeleteNode) -> None:
        """An operator's hand."""
        done = self.tree.commit(Transaction(writes=writes))
        assert not done.reason, done

    def data(self, path: str) -> bytes:
        """A node's data."""
        return self.tree.read([Read(path)])[0].data

    def names(self, path: str) -> list[str]:
        """A node's children."""
        return sorted(self.tree.read([Read(path, Kind.CHILDREN)])[0].children)

    def owners(self) -> list[tuple[str, int]]:
        """Owner and version of each partition."""
        nodes = self.tree.read([Read(f"{DRAFT.owners(GROUP)}/t/{n}") for n in range(PARTITIONS)])
        return [(node.data.decode(), node.stat.version if node.stat else -1) for node in nodes]

    def owners_are_members(self) -> bool:
        """True when every partition is owned by a member."""
        members = self.names(DRAFT.ids(GROUP))
        return all(owner.rpartition("-")[0] in members for owner, _ in self.owners())

    def group_tree(self) -> list[tuple[str, bytes, int]]:
        """What only a coordinator writes of the group: state, owners, commands, with their versions."""
        channels = [DRAFT.channel(GROUP, c) for c in self.names(DRAFT.channels_of(GROUP))]
        commands = [f"{channel}/{name}" for channel in channels for name in self.names(channel)]
        owners = [f"{DRAFT.owners(GROUP)}/t/{n}" for n in range(PARTITIONS)]
        nodes = self.tree.read([Read(path) for path in [DRAFT.state(GROUP), *owners, *commands]])
        return [(node.path, node.data, node.stat.version if node.stat else -1) for node in nodes]


def share(readers: list[Child]) -> Callable[[], bool]:
    """Whether these read all partitions, each its share, none two."""

    def holds() -> bool:
        shares = [reader.reads() for reader in readers]
        return sum(map(len, shares)) == PARTITIONS == len(set().union(*shares)) and all(shares)

    return holds


def judge(readers: list[Child]) -> None:
    """At no instant two readers, and none outside of its lease; from the event logs alone."""
    for reader in readers:
        lease_ms = -1
        for event in reader.events:
            if event["event"] == "lease_extended":
                lease_ms = max(lease_ms, event["lease_until_mono_ms"])
            elif event["event"] == "fetched":
                assert event["mono_ms"] <= lease_ms, f"read without a lease: {event}"
    for number in range(PARTITIONS):
        name = f"t-{number}"
        turns = [
            (event["mono_ms"], who, event)
            for who, reader in enumerate(readers)
            for event in reader.of("fetched", "fetch_started")
            if event.get("partition") == name or name in event.get("offsets", {})
        ]
        turns.sort(key=lambda turn: turn[:2])
        _judge_turns(name, turns)


def _judge_turns(name: str, turns: list[tuple[int, int, Event]]) -> None:
    """Once another one reads, nobody reads on who was not told to start again."""
    ended: set[int] = set()
    reading: int | None = None
    for at_ms, who, event in turns:
        if event["event"] == "fetch_started":
            ended.discard(who)
            continue
        assert who not in ended, f"two readers of {name} at {at_ms}: {event}"
        if reading not in (None, who):
            ended.add(reading)
        reading = who


def test_f01_a_coordinator_stopped_past_its_session_changes_nothing_when_it_goes_on(chroot: str) -> None:
    with Scene(chroot) as scene:
        old = scene.child(COORDINATOR, session_timeout_ms=3_000)
        assert old.wait("elected")["epoch"] == 1
        new = scene.child(COORDINATOR, session_timeout_ms=3_000)
        readers = [scene.child(READER), scene.child(READER)]
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "a standby")
        wait_until(share(readers), "two share")
        old.signal(signal.SIGSTOP)
        stopped_ms = now_ms()
        readers.append(scene.child(READER))  # what the stopped one will find in its socket
        assert new.wait("elected")["epoch"] == 2
        wait_until(share(readers), "three share")
        wait_until(lambda: not scene.names(DRAFT.channel(GROUP, readers[2].of("registered")[0]["consumer"])), "rest")
        before = scene.group_tree()
        assert len(old.of("deposed", "session_lost")) == 0
        old.signal(signal.SIGCONT)
        resumed_ms = now_ms()
        assert resumed_ms - stopped_ms > 3_000
        old.wait("deposed")
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "it stands by")
        assert scene.group_tree() == before
        assert old.of("elected", "start_sent", "stop_sent", "rebalance_started", since_ms=resumed_ms) == []
        assert (scene.data(EPOCH), scene.data(DRAFT.coordinator)) == (b"2", b"1")
        readers[2].close()
        wait_until(share(readers[:2]), "the new one goes on serving")
        assert scene.owners_are_members()
        assert scene.data(EPOCH) == b"2"
        judge(readers)


class HoldingProxy(Proxy):
    """A link that, once told to, holds back the client's first multi and all that follows it, until it is let go."""

    def __init__(self, target_port: int) -> None:
        self._holding = threading.Event()
        self._go_on = threading.Event()
        self.held = threading.Event()
        super().__init__(target_port)

    def hold_multis(self) -> None:
        """From now on."""
        self._holding.set()

    def let_go(self) -> None:
        """Deliver what was held."""
        self._holding.clear()
        self._go_on.set()

    def close(self) -> None:
        """End it."""
        self.let_go()
        super().close()

    def _pump(self, one: socket.socket, other: socket.socket, up: bool) -> None:
        with suppress(OSError), one.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack("!i", head)[0])
                if up and self._holding.is_set() and len(frame) > 8 and struct.unpack_from("!i", frame, 4)[0] == MULTI:
                    self.held.set()
                    self._go_on.wait(PATIENCE_SECONDS)
                other.sendall(head + frame)
        for sock in (one, other):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class Reports(logging.Handler):
    """The events of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event."""
        if hasattr(record, "zkcoord_event"):
            fields = plain(record.__dict__["zkcoord_fields"])
            self.events.append({"event": record.__dict__["zkcoord_event"], **fields})

    def of(self, name: str) -> list[Event]:
        """The events of this name."""
        return [event for event in list(self.events) if event["event"] == name]


@pytest.fixture
def reports() -> Iterator[Reports]:
    """What this process reports meanwhile."""
    handler, level = Reports(), EVENTS.level
    EVENTS.setLevel(logging.INFO)
    EVENTS.addHandler(handler)
    yield handler
    EVENTS.removeHandler(handler)
    EVENTS.setLevel(level)


def test_f01_what_a_deposed_coordinator_had_on_its_way_is_refused_by_the_server(
    zookeeper: EmbeddedZooKeeper, chroot: str, reports: Reports
) -> None:
    """Its session is alive all the time: nothing but the epoch's version stands between its multis and the tree."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with Scene(chroot) as scene, HoldingProxy(port) as link:
        old = Coordinator(link.hosts + chroot.removeprefix(zookeeper.hosts), 0, session_timeout_ms=30_000)
        old.start()
        scene.stack.callback(old.stop)
        wait_until(lambda: reports.of("elected"), "the first is elected")
        new = Coordinator(chroot, 1)
        new.start()
        scene.stack.callback(new.stop)
        readers = [scene.child(READER)]
        wait_until(share(readers), "one reads everything")
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "a standby")
        link.hold_multis()
        readers.append(scene.child(READER))
        assert link.held.wait(PATIENCE_SECONDS)
        scene.write(DeleteNode(DRAFT.coordinator, 0))
        wait_until(lambda: len(reports.of("elected")) == 2, "the other is elected")
        wait_until(share(readers), "it serves")
        wait_until(lambda: not scene.names(DRAFT.channel(GROUP, readers[1].of("registered")[0]["consumer"])), "rest")
        before = scene.group_tree()
        link.let_go()
        wait_until(lambda: reports.of("deposed"), "the first learns it")
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "it stands by")
        assert scene.group_tree() == before
        (deposed,) = reports.of("deposed")
        assert (deposed["coordinator"], deposed["epoch"]) == (0, 1)
        assert [event["coordinator"] for event in reports.of("elected")] == [0, 1]
        assert scene.data(EPOCH) == b"2"
        judge(readers)


def test_f15_a_consumer_in_a_black_hole_stops_reading_before_another_begins(
    zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """Its connection to ZooKeeper stays open and swallows everything, both ways; it is told nothing."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with Scene(chroot) as scene, Proxy(port) as link:
        coordinator = Coordinator(chroot)
        coordinator.start()
        scene.stack.callback(coordinator.stop)
        cut = scene.child(READER, link.hosts + chroot.removeprefix(zookeeper.hosts))
        other = scene.child(READER)
        wait_until(share([cut, other]), "two share")
        consumer, mine = cut.of("registered")[0]["consumer"], cut.reads()
        assert link.connections == 1
        link.stall()
        black_ms = now_ms()
        lost = cut.wait("fetch_lost")
        assert consumer in scene.names(DRAFT.ids(GROUP))  # its session stands: nobody else can have begun
        assert set(lost["partitions"]) == mine
        wait_until(lambda: consumer not in scene.names(DRAFT.ids(GROUP)), "its session ends")
        wait_until(lambda: len(other.reads()) == PARTITIONS, "the other one reads everything")
        last_ms = max(event["mono_ms"] for event in cut.of("fetched"))
        taken_ms = min(e["mono_ms"] for e in other.of("fetched", since_ms=black_ms) if e["partition"] in mine)
        assert last_ms - black_ms > SESSION_MS // 6  # it did read on
        assert last_ms <= black_ms + SESSION_MS * 2 // 3 + 100
        assert last_ms < taken_ms
        judge([cut, other])
        link.flow()
        link.cut()
        wait_until(share([cut, other]), "it comes back under a new name")
        assert len({event["consumer"] for event in cut.of("registered")}) == 2
        judge([cut, other])
