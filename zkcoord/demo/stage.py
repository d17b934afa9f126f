"""The servers and programs of one run, and how the demo looks at them and waits for them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.demo.events import EventLog
from zkcoord.demo.options import CONSUMERS, COORDINATORS, GROUP, TOPIC, Options, Places
from zkcoord.demo.say import Voice
from zkcoord.demo.watch import Watch
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.embedded.child import Child
from zkcoord.errors import UnavailableError
from zkcoord.group_report import GroupReport, read_group
from zkcoord.kafka.client import NATIVE_LOG, KafkaClient, native_errors
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read

POLL_S = 0.02
CALM_MS = 500  # a group that stays settled this long has come to rest
STATUS_MS = 5_000  # how often a person hears how it goes
END_MS = 30_000  # a Spark that ends: its batch, its Java
ORPHAN_MS = 2_000  # what a program may take to end when the demo was killed: nobody will count what it does
SOON_MS = 120_000  # everything that is waited for; a loaded machine starts three Sparks in one minute
SERVER_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")  # a server of two minutes: see `consumer.JAVA`
PRODUCER, COORDINATOR = "producer", "coordinator"

Found = TypeVar("Found")


class Stage:
    """Everything that runs. A context manager: entering starts servers and programs, leaving ends all of them."""

    def __init__(self, options: Options, places: Places, voice: Voice) -> None:
        self.options, self.places, self.voice = options, places, voice
        self.zookeeper = EmbeddedZooKeeper(places.folder / "zookeeper", jvm_options=SERVER_JAVA)
        self.kafka = EmbeddedKafka(self.zookeeper.hosts, places.folder / "kafka", jvm_options=SERVER_JAVA)
        self.partitions = tuple(TopicPartition(TOPIC, n) for n in range(options.partitions))
        self.children: dict[str, Child] = {}
        self.logs: dict[str, EventLog] = {}
        self.playing: set[str] = set()  # the children that must run
        self._groups: list[int] = []  # the consumers' processes: each has a Java of its own, a child's child
        self._stack = ExitStack()
        self._said_ns = time.monotonic_ns()

    def __enter__(self) -> Stage:
        try:
            self._start()
        except BaseException:
            self._end(hurry=True)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(hurry=kind is not None)

    # start and end

    def _start(self) -> None:
        self.voice.say("starting ZooKeeper and Kafka")
        for server in (self.zookeeper, self.kafka):
            self._stack.callback(server.kill)
            server.start()
        self._create_topic()
        for number in COORDINATORS:
            self._run(
                f"{COORDINATOR}-{number}", ["zkcoord.cli.main", COORDINATOR, "--id", str(number)], log_format=True
            )
        self.tree = Tree(self.zookeeper.hosts)
        self._stack.callback(self.tree.close)
        self.kafka_client = KafkaClient(self.kafka.bootstrap_servers)
        self._stack.callback(self.kafka_client.close)
        self.watch = Watch(self.zookeeper.hosts)
        self._stack.callback(self.watch.close)
        self._run(PRODUCER, self.producer_command(self.options.rate, "--go", str(self.places.go(PRODUCER))))
        self.wait("a coordinator to serve", lambda: self.serving() is not None)
        self.wait("the first records", lambda: self.logs[PRODUCER].first("ready"))
        self.voice.say(f"coordinator {self.serving()} serves, topic {TOPIC} has {len(self.partitions)} partitions")
        for name in CONSUMERS:
            program = ["zkcoord.demo.consumer", "--name", name, "--folder", str(self.places.folder)]
            scratch = str(self.places.scratch)
            self._run(name, [*program, *self._servers()], TMPDIR=scratch, SPARK_LOCAL_DIRS=scratch)
        self.voice.say("three PySpark consumers warm up: only then do they join")
        for name in CONSUMERS:
            self.wait(f"consumer {name} to be warm", partial(self.logs[name].first, "warm"))
            self.voice.say(f"consumer {name} is warm")

    def _run(self, name: str, module: list[str], *, log_format: bool = False, **environment: str) -> None:
        """Start `python -m module…` as a child that must run from now on."""
        more = ["--zookeeper", self.zookeeper.hosts, "--log-format", "json"] if log_format else []
        command = [sys.executable, "-m", *module, *more]
        child = Child(name, command, self.places.log(name), env={**os.environ, **environment}, grace_ms=ORPHAN_MS)
        self.children[name], self.logs[name] = child, EventLog(child.log)
        child.start()
        self.playing.add(name)
        if name in CONSUMERS and child.pid is not None:
            with suppress(ProcessLookupError):  # it has ended at once: whoever waits for it will say so
                self._groups.append(os.getpgid(child.pid))

    def producer_command(self, rate: int, *more: str) -> list[str]:
        """The module and arguments of a producer."""
        where = ["--bootstrap-servers", self.kafka.bootstrap_servers, "--topic", TOPIC]
        return ["zkcoord.demo.producer", *where, "--partitions", str(len(self.partitions)), "--rate", str(rate), *more]

    def _servers(self) -> list[str]:
        return ["--zookeeper", self.zookeeper.hosts, "--bootstrap-servers", self.kafka.bootstrap_servers]

    def _create_topic(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        servers = self.kafka.bootstrap_servers
        with native_errors(servers, f"create the topic {TOPIC}"):
            admin = AdminClient({"bootstrap.servers": servers}, logger=NATIVE_LOG)
            admin.create_topics([NewTopic(TOPIC, len(self.partitions), 1)])[TOPIC].result(SOON_MS / 1000)

    def _end(self, *, hurry: bool) -> None:
        """End the programs, in good order unless in a hurry, then the servers; nothing is left running."""
        try:
            for child in self.children.values():
                if hurry or child.name not in self.playing:
                    child.kill()
            for name in sorted(self.playing, key=lambda each: each.startswith(COORDINATOR)):  # consumers leave first
                self.children[name].stop(END_MS)
            self._await_java()
        finally:
            self._stack.close()

    def _await_java(self) -> None:
        """A consumer's Java ends by itself when the consumer has ended, however that was; wait until it has."""
        end_ns = time.monotonic_ns() + END_MS * 1_000_000
        while any(_exists(group) for group in self._groups) and time.monotonic_ns() < end_ns:
            time.sleep(POLL_S)

    # looking

    def serving(self) -> int | None:
        """The number of the coordinator that serves, None while there is none."""
        (node,) = self.tree.read([Read(DRAFT.coordinator)])
        return int(node.data) if node.exists else None

    def group(self) -> GroupReport:
        """The group as it stands in ZooKeeper."""
        return read_group(self.tree, DRAFT, GROUP)

    def owners(self) -> dict[TopicPartition, str]:
        """Who owns each partition, as consumer ids."""
        owners = self.group().view.owners
        return {p: consumer_of(owners[p].thread) if p in owners else "" for p in self.partitions}

    def consumer_id(self, name: str) -> str:
        """The id that consumer `name` is registered with; "" before it was."""
        registered = self.logs[name].last("registered")
        return registered["consumer"] if registered else ""

    def processed(self) -> int:
        """How many records are committed."""
        offsets = self.group().offsets
        return sum(offsets.get(p) or 0 for p in self.partitions)

    def produced(self) -> int:
        """How many records the logs hold."""
        return sum(self.kafka_client.end_offsets(self.partitions).values())

    def lag(self) -> int:
        """Records that are not committed yet."""
        offsets = self.group().offsets  # read first, so that it is never negative
        ends = self.kafka_client.end_offsets(self.partitions)
        return sum(ends[p] - (offsets.get(p) or 0) for p in self.partitions)

    def describe(self) -> str:
        """The group for a person, in one line."""
        report = self.group()
        held = shares(self.owners(), {self.consumer_id(name): name for name in CONSUMERS})
        return f"{report.phase.value}, generation {report.view.state.generation} · {held}"

    # waiting

    def wait(self, what: str, condition: Callable[[], Found | None], *, status: bool = False) -> Found:
        """What `condition` returns as soon as that is true; UnavailableError if it is not in time, or a child ends."""
        end_ns = time.monotonic_ns() + SOON_MS * 1_000_000
        while True:
            found = condition()
            if found:
                return found
            self._check()
            if time.monotonic_ns() > end_ns:
                raise UnavailableError(f"waited {SOON_MS} ms in vain for {what}; the logs are in {self.places.folder}")
            if status:
                self._status()
            time.sleep(POLL_S)

    def settle(self, names: Iterable[str]) -> None:
        """Wait until the group consists of these consumers, each reading its share, and stays like that."""
        expected = {self.consumer_id(name) for name in names}
        since_ns: int | None = None

        def calm() -> bool:
            nonlocal since_ns
            report = self.group()
            if not report.settled or set(report.view.members) != expected:
                since_ns = None
                return False
            since_ns = since_ns or time.monotonic_ns()
            return time.monotonic_ns() - since_ns > CALM_MS * 1_000_000

        self.wait("the group to settle", calm, status=True)

    def stable_ms(self, since_ms: int) -> int:
        """When a coordinator last said that the group is stable, after `since_ms`."""

        def said() -> list[int]:
            logs = [self.logs[f"{COORDINATOR}-{number}"] for number in COORDINATORS]
            return [event["mono_ms"] for log in logs for event in log.all("rebalance_stable", since_ms=since_ms)]

        return max(self.wait("the coordinator to see a stable group", said))

    def flow(self, ms: int) -> None:
        """Let records flow for so long, and say how it goes."""
        end_ns = time.monotonic_ns() + ms * 1_000_000
        while time.monotonic_ns() < end_ns:
            self._check()
            self._status()
            time.sleep(POLL_S)

    def _status(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._said_ns >= STATUS_MS * 1_000_000:
            self._said_ns = now_ns
            self.voice.say(f"{self.produced():,} produced, lag {self.lag():,} · {self.describe()}")

    def _check(self) -> None:
        for name in sorted(self.playing):
            child = self.children[name]
            if not child.running:
                raise UnavailableError(
                    f"{called(name)} ended with code {child.exit_code}; its log ends with:\n{child.tail()}"
                )


def called(name: str) -> str:
    """A child for a person: its name, which says what it is but for a consumer's letter."""
    return f"consumer {name}" if name in CONSUMERS else name


def shares(owners: Mapping[TopicPartition, str], names: Mapping[str, str]) -> str:
    """Who reads what, for a person. `owners`: consumer ids, "" nobody; `names`: of the ids, "" for not registered yet.

    >>> shares({TopicPartition("t", 0): "g_1", TopicPartition("t", 1): ""}, {"g_1": "a", "": "c"})
    'consumer a: 0 · nobody: 1'
    """
    held: dict[str, list[str]] = {}
    for partition, owner in sorted(owners.items()):
        who = called(names[owner]) if owner and owner in names else "nobody"
        held.setdefault(who, []).append(str(partition.partition))
    return " · ".join(f"{who}: {' '.join(numbers)}" for who, numbers in sorted(held.items()))


def _exists(group: int) -> bool:
    """Whether a process of that group is left; they are looked at, never signalled."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # none, or somebody else's by now
        return False
    return True
