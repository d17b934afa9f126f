"""Coordinators and readers as processes of their own, and who read what when, judged from their event logs alone.

The logs' `mono_ms` is one machine's clock, so lines of several processes can be compared.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.waiting import wait_until
from zkcoord.clock import mono_ms
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, TOPICS
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction

PATIENCE_SECONDS = 120.0  # only what fails takes so long
PARTITIONS = 4
SESSION_MS = 4_000
GROUP = "g"

COORDINATOR = """
import logging, sys
from zkcoord import Coordinator
from zkcoord.logs import configure

configure("json", logging.INFO)
Coordinator(sys.argv[1], session_timeout_ms=int(sys.argv[2])).run()
"""

READER = """
import logging, signal, sys, threading, time
from zkcoord import Consumer
from zkcoord.clock import mono_ms
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
pace = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: pace.set())
consumer.start()
while not pace.wait(0.003):
    with lock:
        for p in sorted(positions):
            now_ms = mono_ms()
            if consumer.allowed(p):
                emit("fetched", partition=p, first=positions[p], last=positions[p], mono_ms=now_ms)
                positions[p] += 1
consumer.stop()
"""

Event = dict[str, Any]


def now_ms() -> int:
    """The clock of the event logs."""
    return mono_ms()


class Child:
    """A process whose log of events is kept."""

    def __init__(
        self, code: str, zookeeper: str, session_timeout_ms: int = SESSION_MS, package: Path | None = None
    ) -> None:
        """`package`: the folder of another release of zkcoord, to be imported in place of this one."""
        command = [sys.executable, "-c", code, zookeeper, str(session_timeout_ms)]
        env = None if package is None else {**os.environ, "PYTHONPATH": str(package)}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=package)
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

    def child(
        self, code: str, zookeeper: str = "", session_timeout_ms: int = SESSION_MS, package: Path | None = None
    ) -> Child:
        """Start a process; it is killed at the end."""
        child = Child(code, zookeeper or self.zookeeper, session_timeout_ms, package)
        self.stack.callback(child.close)
        self.stack.callback(child.signal, signal.SIGCONT)
        return child

    def write(self, *writes: CreateNode | DeleteNode | SetNode) -> None:
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
