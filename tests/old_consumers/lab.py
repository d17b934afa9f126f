"""Real old consumers as child processes, and what the tree says of them meanwhile.

`Lab` is one tree with one group. It starts consumers of any old version (zkcoord.embedded.old_consumer), waits for
conditions with deadlines, and notes at each change who owns what. A consumer's log is read in whole lines only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS
from zkcoord.embedded.child import Child
from zkcoord.embedded.class_archives import WRITES_MS, keep_archive
from zkcoord.embedded.old_consumer import old_consumer_archive, old_consumer_command
from zkcoord.embedded.zookeeper import EmbeddedZooKeeper

SESSION_MS, BACKOFF_MS, RETRIES = 3_000, 300, 4  # less than the old defaults (6 s, 2 s, 4): faults show sooner
LOOK_EVERY_S = 0.02
START_S = 60.0  # a Java that starts beside others, on a machine with two cores
BROKER = b'{"jmx_port":-1,"timestamp":"1416335000123","host":"127.0.0.1","version":1,"port":1}'

V08, V011, V11 = OLD_KAFKA_VERSIONS
LONG = pytest.mark.long
EACH_AT_LENGTH = [pytest.param(V08, marks=LONG), pytest.param(V011, marks=LONG), V11]  # one in the default tier

Owners = Mapping[str, str]  # "topic-partition" -> thread


def shares(topic: str, *names: str, group: str = "g") -> Owners:
    """Partition by partition, from 0 on, the member whose first thread owns it."""
    return {f"{topic}-{n}": f"{group}_{name}-0" for n, name in enumerate(names)}


class OldConsumer:
    """One member, in a process of its own. `words` are OldConsumer.java's."""

    def __init__(
        self, name: str, version: str, words: Mapping[str, str], folder: Path, options: Sequence[str] = ()
    ) -> None:
        self.name, self.version = name, version
        self.id = f"{words['group.id']}_{name}"
        heap = "128m" if words["fetch"] == "true" else "64m"
        command = old_consumer_command(version, {"consumer.id": name, **words}, heap=heap, options=options)
        self.child = Child(f"{name} ({version})", command, folder / f"{name}.log", listens=True)
        self._read, self._events = 0, list[dict[str, Any]]()

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Everything that it has said until now, in order; of one kind if asked."""
        with contextlib.suppress(FileNotFoundError), self.child.log.open("rb") as log:
            log.seek(self._read)
            lines = log.read().split(b"\n")
            self._read = log.tell() - len(lines.pop())  # the last may be incomplete
            self._events += [json.loads(line) for line in lines if line.startswith(b'{"at_ms":')]
        return [event for event in self._events if kind in (None, event["event"])]

    def await_event(self, kind: str, count: int = 1, patience_s: float = START_S) -> dict[str, Any]:
        """The `count`-th event of that kind, as soon as it has come."""

        def come() -> bool:
            assert self.child.running or len(self.events(kind)) >= count, f"{self.name} ended: {self.child.tail()}"
            return len(self.events(kind)) >= count

        wait_until(come, f"{self.name} says {kind}; it said {self.child.tail()}", patience_s)
        return self.events(kind)[count - 1]

    def tries(self, number: int | None = None) -> int:
        """How many tries to rebalance it has begun: all, or those of that number."""
        begun = [event for event in self.events("rebalance") if event["phase"] == "begin"]
        return len([event for event in begun if number in (None, event["try"])])

    def rebalances(self) -> int:
        """How often it has begun to rebalance, repeated tries aside."""
        return self.tries(0)

    def rests(self) -> bool:
        """True while it is not rebalancing: what it owns, and the tree says, is not about to be released."""
        return [event["phase"] for event in self.events("rebalance")][-1:] == ["end"]

    def owned(self) -> set[str]:
        """What it holds to be its own now, as `topic-partition`."""
        last = (self.events("owns") or [{"partitions": {}}])[-1]["partitions"]
        return {f"{topic}-{number}" for topic, numbers in last.items() for number in numbers}

    def leave(self) -> None:
        """Its own shutdown: it commits, and closes its session."""
        self.child.say("stop")
        self.await_event("stopped")


@cache
def make_archive(version: str) -> None:
    """Make the archive of the classes of a version's consumers, if it is absent: with it a start takes 0.9 s of
    processor time for 1.5 s. The first process that asks makes it, others wait."""
    place = old_consumer_archive(version)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return
        with (
            TemporaryDirectory() as folder,
            EmbeddedZooKeeper(fsync=False) as zookeeper,
            Lab(zookeeper.hosts, Path(folder)) as lab,
        ):
            lab.broker()
            lab.topic("t", 1)

            def run(options: Sequence[str]) -> None:
                consumer = lab.launch(f"c{len(lab.consumers)}", version, options=options)
                consumer.await_event("started")
                consumer.leave()
                consumer.child.stop(WRITES_MS)

            keep_archive(place, run)


class Lab:
    """One tree and one group: a context manager, which ends every consumer that it started."""

    def __init__(self, hosts: str, folder: Path, group: str = "g") -> None:
        self.hosts, self.folder, self.group = hosts, folder, group
        self.consumers: list[OldConsumer] = []
        self.history: list[tuple[int, Owners]] = []  # when somebody came to own, or lost, something
        self._claims: dict[str, dict[int, tuple[int, str]]] = defaultdict(dict)
        """`topic-partition` -> the zxid of a claim -> its time, and its thread."""
        self.zk = KazooClient(hosts, timeout=20)
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, name="lab-owners", daemon=True)

    def __enter__(self) -> Self:
        self.zk.start(timeout=START_S)
        for path in ("/brokers/ids", "/brokers/topics", "/consumers"):
            self.zk.ensure_path(path)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self.consumers:
            consumer.child.kill()
        self._over.set()
        self._looking.join()
        self.zk.stop()
        self.zk.close()

    def broker(self, number: int = 0) -> None:
        """Register a broker that nobody can connect to: members that fetch nothing only count them."""
        self.zk.create(f"/brokers/ids/{number}", BROKER)

    def topic(self, name: str, partitions: int) -> None:
        """Create a topic, or let it grow; a real broker's controller takes it up, too."""
        numbers: dict[str, list[int]] = {str(n): [0] for n in range(partitions)}
        data = json.dumps({"version": 1, "partitions": numbers}, separators=(",", ":")).encode()
        path = f"/brokers/topics/{name}"
        if self.zk.exists(path):
            self.zk.set(path, data)
        else:
            self.zk.create(path, data)

    def start(
        self, name: str, version: str, topics: str = "topics=t:1", *, fetch: bool = False, **properties: object
    ) -> OldConsumer:
        """Start a member and return at once. `properties`: a consumer's, with `_` for the dots of their names."""
        make_archive(version)
        return self.launch(name, version, topics, fetch=fetch, **properties)

    def launch(
        self,
        name: str,
        version: str,
        topics: str = "topics=t:1",
        *,
        fetch: bool = False,
        options: Sequence[str] = (),
        **properties: object,
    ) -> OldConsumer:
        """The same, with further options of Java, and with the archive only if there is one."""
        kind, _, value = topics.partition("=")
        words: dict[str, str] = {
            kind: value,
            "group.id": self.group,
            "zookeeper.connect": self.hosts,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "zookeeper.connection.timeout.ms": "20000",
            "rebalance.backoff.ms": str(BACKOFF_MS),
            "rebalance.max.retries": str(RETRIES),
            "auto.offset.reset": "smallest",
            "fetch": str(fetch).lower(),
            **{key.replace("_", "."): str(each) for key, each in properties.items()},
        }
        consumer = OldConsumer(name, version, words, self.folder, options)
        self.consumers.append(consumer)
        consumer.child.start()
        return consumer

    def join(self, name: str, version: str, topics: str = "topics=t:1", **properties: Any) -> OldConsumer:
        """Start a member and return when its first rebalance has succeeded."""
        consumer = self.start(name, version, topics, **properties)
        consumer.await_event("started")
        return consumer

    def path(self, *parts: str) -> str:
        """A path below the group."""
        return "/".join((f"/consumers/{self.group}", *parts))

    def members(self) -> set[str]:
        """The ids that are registered."""
        return set(self._children(self.path("ids")))

    def registration(self, consumer: OldConsumer) -> str:
        """The text of a member's registration."""
        return str(self.zk.get(self.path("ids", consumer.id))[0].decode())

    def owners(self) -> Owners:
        """Who owns what, from the tree."""
        found: dict[str, str] = {}
        for topic in self._children(self.path("owners")):
            for number in self._children(self.path("owners", topic)):
                with contextlib.suppress(NoNodeError):
                    data, stat = self.zk.get(self.path("owners", topic, number))
                    found[f"{topic}-{number}"] = data.decode()
                    self._claims[f"{topic}-{number}"][stat.czxid] = (stat.ctime, data.decode())
        return dict(sorted(found.items()))

    def held_until(self, partition: str, ids: Collection[str], begin_ms: int, end_ms: int) -> int:
        """When somebody else claimed what a member (with these ids) says it held within these times, as ZooKeeper says;
        `end_ms` if nobody did. A claim needs a node that is gone, so the member had released it, or had lost its
        session. A member that stood still has told later what it had, and what it has no more."""
        claims = [(at_ms, thread.rpartition("-")[0] in ids) for at_ms, thread in list(self._claims[partition].values())]
        own_ms = max((at_ms for at_ms, own in claims if own and at_ms <= begin_ms), default=begin_ms)
        others = (at_ms for at_ms, own in claims if not own and own_ms < at_ms < end_ms)
        return max(begin_ms, min(others, default=end_ms))

    def await_owners(self, expected: Owners, patience_s: float = PATIENCE_SECONDS) -> None:
        """Wait until the tree says this."""
        wait_until(lambda: self.owners() == expected, f"owners are {expected}", patience_s)

    def register(self, name: str, text: str) -> str:
        """A registration of the test's own, in its session; the path, to delete it again."""
        return str(
            self.zk.create(self.path("ids", f"{self.group}_{name}"), text.encode(), ephemeral=True, makepath=True)
        )

    def poke(self) -> str:
        """A registration without any topic, which makes every member rebalance."""
        return self.register("poke-1", '{"version":1,"subscription":{},"pattern":"static","timestamp":"1416335000123"}')

    def claim(self, topic: str, number: int, thread: str) -> str:
        """An owner node of the test's own, in its session; the path, to delete it again."""
        path = self.path("owners", topic, str(number))
        return str(self.zk.create(path, thread.encode(), ephemeral=True, makepath=True))

    def reads(self) -> dict[str, list[tuple[int, int, str]]]:
        """Who read what when: `topic-partition` -> (time, offset, consumer's name), in the order of time."""
        found: dict[str, list[tuple[int, int, str]]] = {}
        for consumer in self.consumers:
            for event in consumer.events("record"):
                key = f"{event['topic']}-{event['partition']}"
                found.setdefault(key, []).append((event["at_ms"], event["offset"], consumer.name))
        return {key: sorted(rows) for key, rows in sorted(found.items())}

    def read_offsets(self) -> dict[str, list[int]]:
        """The offsets that anybody read, sorted, repeats included."""
        return {key: sorted(offset for _, offset, _ in rows) for key, rows in self.reads().items()}

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self.zk.get_children(path))
        except NoNodeError:
            return []

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            now = self.owners()
            if not self.history or self.history[-1][1] != now:
                self.history.append((time.time_ns() // 1_000_000, now))
