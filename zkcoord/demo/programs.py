"""The servers and programs of one run as child processes: how they are started, waited for, and ended."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Self, TypeVar

from zkcoord.core.model import TopicPartition
from zkcoord.demo.events import Event, EventLog
from zkcoord.demo.options import CONSUMERS, TOPIC, Options, Places
from zkcoord.demo.say import Voice
from zkcoord.embedded import EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.child import Child
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import NATIVE_LOG, KafkaClient, native_errors
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Read

POLL_S = 0.02
STATUS_MS = 5_000  # the time between two status lines for a person
END_MS = 30_000  # the time that a Spark has for its end: its batch, then its Java
ORPHAN_MS = 2_000  # the time that a program has for its end if the demo was killed: its output is not counted any more
SOON_MS = 120_000  # the limit of every wait; a loaded machine starts three Sparks in one minute
PRODUCER, COORDINATOR = "producer", "coordinator"

Found = TypeVar("Found")


class Programs(ABC):
    """All servers and programs that run. A context manager: entering starts them, leaving ends them."""

    layout: Layout  # of the tree

    def __init__(self, options: Options, places: Places, voice: Voice, *, partitions: int, kafka_version: str) -> None:
        self.options, self.places, self.voice = options, places, voice
        self.zookeeper = EmbeddedZooKeeper(places.folder / "zookeeper")
        self.kafka: KafkaBroker
        folder = places.folder / "kafka"
        if kafka_version == KAFKA_4_VERSION:
            self.kafka = EmbeddedKRaft(folder, version=kafka_version)
        else:
            self.kafka = EmbeddedKafka(self.zookeeper.hosts, folder, version=kafka_version)
        self.partitions = tuple(TopicPartition(TOPIC, n) for n in range(partitions))
        self.children: dict[str, Child] = {}
        self.logs: dict[str, EventLog] = {}
        self.playing: set[str] = set()  # the children that must run
        self.stack = ExitStack()  # the servers and clients, which are closed when the programs have ended
        self._groups: list[int] = []  # process groups of the children that start a Java, which is a child of the child
        self._said_ns = time.monotonic_ns()

    @abstractmethod
    def set_up(self) -> None:
        """Start servers and programs."""

    @abstractmethod
    def status(self) -> str:
        """Return the state of the run in one line for a person."""

    def __enter__(self) -> Self:
        try:
            self.set_up()
        except BaseException:
            self._end(hurry=True)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(hurry=kind is not None)

    # start and end

    def start_servers(self) -> None:
        """Start ZooKeeper and Kafka, make the topic, and open clients of both."""
        for server in (self.zookeeper, self.kafka):
            self.stack.callback(server.kill)
            server.start()
        self._create_topic()
        self.tree = Tree(self.zookeeper.hosts)
        self.stack.callback(self.tree.close)
        self.kafka_client = KafkaClient(self.kafka.bootstrap_servers)
        self.stack.callback(self.kafka_client.close)

    def _create_topic(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        servers = self.kafka.bootstrap_servers
        with native_errors(servers, f"create the topic {TOPIC}"):
            admin = AdminClient({"bootstrap.servers": servers}, logger=NATIVE_LOG)
            admin.create_topics([NewTopic(TOPIC, len(self.partitions), 1)])[TOPIC].result(SOON_MS / 1000)

    def start_producer(self) -> None:
        """Start a producer, and wait until it has written the first records. It then waits for its file
        (`Places.go`)."""
        self.run_module(PRODUCER, self.producer_command(self.options.rate, "--go", str(self.places.go(PRODUCER))))
        self.wait("the first records", lambda: self.logs[PRODUCER].first("ready"))

    def producer_command(self, rate: int, *more: str) -> list[str]:
        """Return the module and the arguments of a producer."""
        where = ["--bootstrap-servers", self.kafka.bootstrap_servers, "--topic", TOPIC]
        return ["zkcoord.demo.producer", *where, "--partitions", str(len(self.partitions)), "--rate", str(rate), *more]

    def end_producer(self) -> Event:
        """End the producer; return its last event, which counts its records."""
        producer = self.children[PRODUCER]
        self.playing.discard(PRODUCER)
        producer.stop(END_MS)
        said = self.logs[PRODUCER].last("produced")
        if said is None or producer.exit_code != 0:
            raise UnavailableError(f"the producer ended with code {producer.exit_code}:\n{producer.tail()}")
        self.voice.say(f"the producer has ended: {sum(said['records'].values()):,} records")
        return said

    def addresses(self) -> list[str]:
        """Return the options that tell a program where the servers are."""
        return ["--zookeeper", self.zookeeper.hosts, "--bootstrap-servers", self.kafka.bootstrap_servers]

    def start_coordinator(self, number: int) -> None:
        """Start a coordinator of zkcoord."""
        command = ["zkcoord_command", COORDINATOR, "--id", str(number), "--layout", self.layout.name]
        where = ["--zookeeper", self.zookeeper.hosts]
        if self.layout.mirrored:
            where = [*self.addresses(), "--topics", "kafka"]
        self.run_module(f"{COORDINATOR}-{number}", [*command, *where, "--log-format", "json"])

    def serving(self) -> int | None:
        """The number of the coordinator that serves, None while there is none."""
        (node,) = self.tree.read([Read(self.layout.coordinator)])
        return int(node.data) if node.exists else None

    def start_spark(self, name: str) -> None:
        """Start a PySpark consumer. Once it is warm, it waits for its file (`Places.go`)."""
        scratch = str(self.places.scratch)
        command = ["zkcoord.demo.consumer", "--name", name, "--folder", str(self.places.folder), *self.addresses()]
        self.run_module(name, command, has_java=True, TMPDIR=scratch, SPARK_LOCAL_DIRS=scratch)

    def produced(self) -> int:
        """Return how many records Kafka's logs hold."""
        return sum(self.kafka_client.end_offsets(self.partitions).values())

    def run_module(self, name: str, module: Sequence[str], *, has_java: bool = False, **environment: str) -> None:
        """Start `python -m module…` as a child. If it ends before it is told to, the run fails."""
        command = [sys.executable, "-m", *module]
        child = Child(name, command, self.places.log(name), env={**os.environ, **environment}, grace_ms=ORPHAN_MS)
        self.run(child)
        if has_java and child.pid is not None:
            with suppress(ProcessLookupError):  # the child has ended already: the next wait reports that
                self._groups.append(os.getpgid(child.pid))

    def run(self, child: Child) -> None:
        """Start a child. If it ends before it is told to, the run fails."""
        self.children[child.name], self.logs[child.name] = child, EventLog(child.log)
        child.start()
        self.playing.add(child.name)

    def _end(self, *, hurry: bool) -> None:
        """End the programs, then the servers; nothing is left running. `hurry`: kill the programs."""
        try:
            for child in self.children.values():
                if hurry or child.name not in self.playing:
                    child.kill()
            for name in sorted(self.playing, key=lambda each: each.startswith(COORDINATOR)):  # consumers leave first
                self.children[name].stop(END_MS)
            self._await_java()
        finally:
            self.stack.close()

    def _await_java(self) -> None:
        """Wait until the Javas of the consumers have ended. Each ends by itself once its consumer has ended or was
        killed.
        """
        end_ns = time.monotonic_ns() + END_MS * 1_000_000
        while any(_exists(group) for group in self._groups) and time.monotonic_ns() < end_ns:
            time.sleep(POLL_S)

    # waiting

    def wait(self, what: str, condition: Callable[[], Found | None], *, status: bool = False) -> Found:
        """Wait until `condition` returns a true value, and return that value. UnavailableError after SOON_MS, and when
        a child ends."""
        end_ns = time.monotonic_ns() + SOON_MS * 1_000_000
        while True:
            found = condition()
            if found:
                return found
            self._check()
            if time.monotonic_ns() > end_ns:
                raise UnavailableError(f"waited {SOON_MS} ms in vain for {what}; the logs are in {self.places.folder}")
            if status:
                self._tell_status()
            time.sleep(POLL_S)

    def calm(self, what: str, holds: Callable[[], bool], ms: int) -> None:
        """Wait until `holds` was true for `ms` without a break."""
        since_ns: int | None = None

        def held() -> bool:
            nonlocal since_ns
            if not holds():
                since_ns = None
                return False
            since_ns = since_ns or time.monotonic_ns()
            return time.monotonic_ns() - since_ns > ms * 1_000_000

        self.wait(what, held, status=True)

    def flow(self, ms: int) -> None:
        """Let records flow for `ms`, and print status lines."""
        end_ns = time.monotonic_ns() + ms * 1_000_000
        while time.monotonic_ns() < end_ns:
            self._check()
            self._tell_status()
            time.sleep(POLL_S)

    def _tell_status(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._said_ns >= STATUS_MS * 1_000_000:
            self._said_ns = now_ns
            self.voice.say(self.status())

    def _check(self) -> None:
        for name in sorted(self.playing):
            child = self.children[name]
            if not child.running:
                raise UnavailableError(
                    f"{called(name)} ended with code {child.exit_code}; its log ends with:\n{child.tail()}"
                )


def called(name: str) -> str:
    """Return a child's name for a person. A consumer's name is only a letter, so `consumer` stands before it."""
    return f"consumer {name}" if name in CONSUMERS else name


def _exists(group: int) -> bool:
    """True if a process of that group is left. No signal is sent."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # no process has this group id, or one of another user has it by now
        return False
    return True
