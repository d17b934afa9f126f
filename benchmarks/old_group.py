"""A group of real old consumers, and an observer that sees when such a group has settled, and with how many requests.

The old members run in one Java process (java/OldGroup.java) with Kafka's defaults, except a session timeout of 60 s, so
that few pings fall into a measurement. They fetch nothing. Each group has a tree of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from common import DEADLINE_S, GROUP, LOOK_S, SESSION_TIMEOUT_MS, TOPIC, Client, now_ns
from floor import create, fresh_tree, topic

from zkcoord.core.adoption import Adoption
from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.model import Subscriber, TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.artifacts import kafka_jars
from zkcoord.embedded.child import Child as Process
from zkcoord.embedded.java_program import java_command
from zkcoord.embedded.zookeeper import four_letters
from zkcoord.tree.paths import BROKERS, LEGACY, TOPICS
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Kind, Read, parents
from zkcoord.tree.writes import CreateNode

SOURCE = Path(__file__).parent / "java" / "OldGroup.java"
SILENCE_S = 0.4
HEAP = "768m"
BROKER = b'{"jmx_port":-1,"timestamp":"1416335000123","host":"127.0.0.1","version":1,"port":1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a group."""

    settled_ms: float
    requests: int

    def less(self, apart: int) -> Event:
        """Return the same event with `requests` fewer requests."""
        return replace(self, requests=self.requests - apart)


class OldMembers:
    """The process of the old members."""

    def __init__(self, hosts: str, version: str, folder: Path) -> None:
        words = {
            "topic": TOPIC,
            "group.id": GROUP,
            "zookeeper.connect": hosts,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        arguments = [f"{key}={value}" for key, value in words.items()]
        command = java_command(SOURCE, kafka_jars(version), arguments, heap=HEAP)
        self._process = Process(f"old members ({version})", command, folder / "old.log", listens=True)
        self._process.start()
        self._read = 0
        self._await("ready")

    def join(self, count: int) -> None:
        """Start this number of further members; return when their first rebalances have ended."""
        self._ask(f"join {count}", "joined")

    def die(self) -> None:
        """End the oldest member's session behind its back: a hard death, seen at once."""
        self._ask("die", "died")

    def close(self) -> None:
        """End the process; its sessions end by themselves."""
        self._process.kill()

    def _ask(self, command: str, answer: str) -> None:
        self._process.say(command)
        self._await(answer)

    def _await(self, answer: str) -> None:
        pause, end_ns = threading.Event(), now_ns() + int(2 * DEADLINE_S * 1e9)
        while now_ns() < end_ns:
            text = self._process.log.read_text(errors="replace")[self._read :]
            whole = text[: text.rfind("\n") + 1]
            if answer in whole.splitlines():
                self._read += len(whole)
                return
            if not self._process.running:
                break
            pause.wait(LOOK_S)
        raise RuntimeError(f"the old members do not say {answer!r}: {self._process.tail()}")


class Observer:
    """A session that sees registrations come and go, and reads the owners. It counts its own requests."""

    def __init__(self, server: EmbeddedZooKeeper, address: str, partitions: int) -> None:
        self._port, self._partitions = server.port, partitions
        self._client = Client(address)
        self._client.connected()
        self._ids = LEGACY.ids(GROUP)
        self._questions = 0
        self._changed = threading.Event()
        self._t0_ms = 0

    def watch(self) -> int:
        """Watch for the next change of the registrations; return the server's count of requests before it."""
        self._changed.clear()

        def fired(_at_ns: int) -> None:
            self._t0_ms = time.time_ns() // 1_000_000
            self._changed.set()

        self._client.watching[self._ids] = fired
        self._client.nodes([Read(self._ids, Kind.CHILDREN, True)])
        self._questions = 0
        return self._packets()

    def settled(self, before: int) -> Event:
        """Wait until the group has settled after the change that `watch` waits for.

        It has settled with the last claim of a partition, or, of zkcoord's members, the last start that was
        acknowledged, which writes an offset. What a coordinator writes down for itself later is not a part of that.
        """
        if not self._changed.wait(DEADLINE_S):
            raise RuntimeError("no registration changed")
        pause, end_ns = threading.Event(), now_ns() + int(DEADLINE_S * 1e9)
        zxid, last_ns = self._last_write(), now_ns()
        while now_ns() < end_ns:
            pause.wait(LOOK_S)
            found, at_ns = self._last_write(), now_ns()
            if found != zxid:
                zxid, last_ns = found, at_ns
            elif at_ns - last_ns > SILENCE_S * 1e9 and (settled_ms := self._as_planned()) is not None:
                asked = self._packets() - before - self._questions
                return Event(settled_ms=settled_ms - self._t0_ms, requests=asked)
        raise RuntimeError("the group did not settle")

    def close(self) -> None:
        """End the session."""
        self._client.store.close()
        self._client.store.join(2_000)

    def _packets(self) -> int:
        self._questions += 1
        rows = dict(row.split(": ", 1) for row in four_letters(self._port, "srvr").splitlines() if ": " in row)
        return int(rows["Received"])

    def _last_write(self) -> int:
        """The zxid of the server's last write, which each answer names. (The command `srvr` tells it, too, but a
        connection for every look takes 40 % of a core.)"""
        self._questions += 1
        self._client.nodes([Read(self._ids)])
        return int(self._client.store.session.last_zxid)

    def _as_planned(self) -> int | None:
        """Return when an owner or an offset was written last, by the clock that this process shares with the server.
        None while a partition has another owner than planned."""
        partitions = [TopicPartition(TOPIC, number) for number in range(self._partitions)]
        self._questions += 3
        (ids,) = self._client.nodes([Read(self._ids, Kind.CHILDREN)])
        owners = self._client.nodes([Read(LEGACY.owner(GROUP, partition)) for partition in partitions])
        found = {p: node.data.decode() for p, node in zip(partitions, owners, strict=True) if node.exists}
        if found != planned(ids.children, self._partitions):
            return None
        offsets = self._client.nodes([Read(LEGACY.offset(GROUP, partition)) for partition in partitions])
        return max(node.stat.mtime_ms for node in (*owners, *offsets) if node.stat is not None)


def planned(members: tuple[str, ...], partitions: int) -> Mapping[TopicPartition, str]:
    """Return partition -> thread, as the old members' range assignor computes it."""
    subscribers = tuple(Subscriber(consumer_id=name, threads={TOPIC: 1}) for name in members)
    given = AssignorInput(subscribers=subscribers, partitions={TOPIC: tuple(range(partitions))}, owned={})
    return ASSIGNORS["range"](given)


@contextmanager
def legacy_tree(hosts: str, name: str, version: str, partitions: int | None) -> Iterator[str]:
    """Make a chroot with the layout legacy: a broker, an adopted group, and a topic unless it is None. Return its
    address.
    """
    adoption = Adoption(offsets="zookeeper", strategy="range", kafka=version)
    record = encode_record(replace(DEFAULT_RECORD, adoption=adoption))
    paths = [*parents(LEGACY.registration(GROUP, "c")), *parents(f"{BROKERS}/0")]
    with fresh_tree(hosts, name, LEGACY.name) as (address, tree):
        missing = [path for path in dict.fromkeys(paths) if not tree.read([Read(path)])[0].exists]
        create(tree, *map(CreateNode, missing))
        create(tree, CreateNode(f"{BROKERS}/0", BROKER), CreateNode(LEGACY.record(GROUP), record))
        if partitions is not None:
            create(tree, CreateNode(f"{TOPICS}/{TOPIC}", topic(partitions)))
        yield address
