"""The servers, programs and misfortunes of the exactness tests."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.integration.exact_driver import Sinks, made
from tests.integration.exact_plain import TOTAL, PlainSinks
from tests.integration.exact_plain_tables import PlainTableSinks
from tests.integration.exact_tables import TableSinks
from zkcoord.core.model import TopicPartition
from zkcoord.demo.accounting import Output, parse_range
from zkcoord.demo.events import Event, EventLog
from zkcoord.demo.options import GROUP, TOPIC
from zkcoord.demo.output import read_outputs
from zkcoord.embedded import EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.embedded.child import Child
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.group_report import read_group
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, FROM_KAFKA, TOPICS
from zkcoord.tree.writes import CreateNode, Transaction

ROOT = Path(__file__).parents[2]
PATIENCE_S = 150.0  # a loaded machine starts three Sparks in one minute
TICK_S = 0.02
KILLS_MAX = 20  # behind a storm that chance or a slow machine has spared: about one in two hits a batch
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE keyed (topic, "partition", "offset", seq, PRIMARY KEY (topic, "partition", "offset"));
CREATE TABLE plain (topic, "partition", "offset", seq);
CREATE TABLE plain_offsets (topic, "partition", next_offset, PRIMARY KEY (topic, "partition"));
"""


class Scene(ABC):
    """Everything that runs; leaving it ends all. Below: with Spark and Kafka, and without."""

    drivers: ClassVar[Mapping[str, str]] = {
        "a": "finish",
        "b": "cancel",
        "c": "finish",
    }  # and what a stop does with their batches
    later: ClassVar[Collection[str]] = ()  # programs that begin with the storm
    partitions = 4
    within_s = 0.6  # of a batch's beginning, misfortunes come
    sleep_s = 7.0  # longer than a driver's session: it is replaced while it sleeps

    def __init__(self, folder: Path, seed: int, sinks: Sinks | PlainSinks) -> None:
        self.folder, self.sinks = folder, sinks
        self.random = random.Random(seed)
        self.done: list[str] = []  # what was done to whom
        self._stack = ExitStack()
        self._children: dict[str, Child] = {}
        self._logs: dict[str, EventLog] = {}
        self._done_before: dict[str, int] = {}  # batches that a driver had done when its present life began

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        connection = self.sinks.connect()
        connection.executescript(TABLES)
        connection.close()
        self.zookeeper = EmbeddedZooKeeper(self.folder / "zookeeper", fsync=False)
        self._stack.callback(self.zookeeper.kill)
        self.zookeeper.start()
        self.tree = Tree(self.zookeeper.hosts)
        self._stack.callback(self.tree.close)
        where = ["--zookeeper", self.zookeeper.hosts]
        source = self._source()
        for number in (1, 2):
            more = ["--id", str(number), "--session-timeout-ms", "4000", "--log-format", "json", *source]
            self._child(f"coordinator-{number}", "zkcoord_command", "coordinator", *more, *where)
        for name, ending in self.drivers.items():
            options = ["--folder", str(self.folder), "--at-rebalance", ending]
            self._child(name, *self._prepare(name), *options, *where)
        for name in self._children:
            if name not in self.later:
                self._begin(name)

    def _source(self) -> Sequence[str]:
        """Start what topics come from, if it is a server of its own; returns the words about it for coordinators."""
        return ()

    @abstractmethod
    def _prepare(self, name: str) -> tuple[str, ...]:
        """A driver's module and own arguments, with everything else that it needs."""

    def _child(self, name: str, module: str, *arguments: str) -> None:
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        environment = {**os.environ, "TMPDIR": str(self.folder), "SPARK_LOCAL_DIRS": str(self.folder)}
        environment["PYTHONPATH"] = path
        child = Child(name, [sys.executable, "-m", module, *arguments], self.folder / f"{name}.log", env=environment)
        self._children[name], self._logs[name] = child, EventLog(child.log)
        self._stack.callback(child.kill)

    def _begin(self, name: str) -> None:
        self._done_before[name] = len(self.events(name, "batch_done"))
        self._children[name].start()

    # ------------------------------------------------------------------ looking

    def events(self, name: str, *events: str) -> list[Event]:
        """What a program has said, over all its lives."""
        return self._logs[name].all(*events)

    def batches(self, **like: Any) -> list[Event]:
        """The batches that all drivers have begun."""
        started = (each for name in self.drivers for each in self.events(name, "batch_started"))
        return [each for each in started if all(each[key] == value for key, value in like.items())]

    def wait(self, what: str, holds: Callable[[], object]) -> None:
        """Return as soon as it holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                tails = "\n".join(f"{name}: {self._children[name].tail()}" for name in self.drivers)
                raise AssertionError(f"waited too long for {what} after {self.done}:\n{tails}")
            threading.Event().wait(TICK_S)

    def committed(self) -> int:
        """How many records the group has behind it."""
        offsets = read_group(self.tree, DRAFT, GROUP).offsets
        return sum(offsets.get(TopicPartition(TOPIC, number)) or 0 for number in range(self.partitions))

    def table(self, name: str) -> list[tuple[int, int, int]]:
        """Partition, offset and number of the rows of a table, in order."""
        connection = self.sinks.connect()
        try:
            question = f'SELECT "partition", "offset", seq FROM {name} ORDER BY "partition", "offset"'
            return list(connection.execute(question).fetchall())
        finally:
            connection.close()

    @abstractmethod
    def outputs(self) -> Iterable[Output]:
        """The files by range."""

    # ------------------------------------------------------------------ misfortunes

    def storm(self, seconds: float) -> None:
        """Misfortunes at random for so long, and kills until one was felt; all programs run on afterwards."""
        self.wait("two drivers to work", lambda: len([n for n in self.drivers if self._works(n)]) >= 2)
        kinds = [self.kill_in_batch] * 4 + [self.leave, self.sleep, self.kill_coordinator]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.random.choice(kinds)()
        for _ in range(KILLS_MAX):
            if self.batches(replayed=True):
                break
            self.kill_in_batch()

    def kill_in_batch(self) -> None:
        """SIGKILL at a random moment after one of its batches began; it is started again at once."""
        name = self._in_batch()
        self._children[name].kill()
        self.done.append(f"kill {name}")
        self._begin(name)

    def leave(self) -> None:
        """SIGTERM, and back."""
        name = self._working()
        self._children[name].stop(int(PATIENCE_S * 1_000))
        self.done.append(f"leave {name}")
        self._begin(name)

    def sleep(self) -> None:
        """SIGSTOP in a batch until it is replaced, then SIGCONT: it writes late."""
        name = self._in_batch()
        self._children[name].pause()
        self.done.append(f"sleep {name}")
        threading.Event().wait(self.sleep_s)
        self._children[name].resume()

    def kill_coordinator(self) -> None:
        """SIGKILL of one of them, whether it serves or stands by."""
        name = f"coordinator-{self.random.choice((1, 2))}"
        self._children[name].kill()
        self.done.append(f"kill {name}")
        self._begin(name)

    def _in_batch(self) -> str:
        """A driver that began a batch some random time ago."""
        name = self._working()
        begun = len(self.events(name, "batch_started"))
        self.wait(f"a batch of {name}", lambda: len(self.events(name, "batch_started")) > begun)
        threading.Event().wait(self.random.uniform(0, self.within_s))  # a misfortune's moment, not a condition
        return name

    def _working(self) -> str:
        """A driver that has finished a batch in its present life, drawn at random among those there are."""
        found: list[str] = []

        def some() -> bool:
            found[:] = [name for name in self.drivers if self._works(name)]
            return bool(found)

        self.wait("a driver that works", some)
        return self.random.choice(found)

    def _works(self, name: str) -> bool:
        return self._children[name].running and len(self.events(name, "batch_done")) > self._done_before[name]

    # ------------------------------------------------------------------ the end

    def calm(self) -> dict[int, int]:
        """Let everything be processed, and end all; returns partition -> number of records."""
        counts = self._end_of_records()
        self.wait("lag 0", lambda: self.committed() == sum(counts.values()))
        for name in self.drivers:
            self._children[name].stop(int(PATIENCE_S * 1_000))
        return counts

    @abstractmethod
    def _end_of_records(self) -> dict[int, int]:
        """Nothing is produced any more; partition -> number of records."""


class SparkScene(Scene):
    """With Kafka, a producer, and Spark."""

    later = ("producer",)
    rate = 1_000

    def __init__(
        self, folder: Path, seed: int, s3_port: int = 0, version: str = KAFKA_VERSION, postgres: str = ""
    ) -> None:
        sinks = made(folder, s3_port, postgres)
        super().__init__(folder, seed, sinks)
        self._places = sinks.places
        for place in (sinks.places.output, sinks.places.scratch):
            place.mkdir()
        self._kafka = ""
        self._sinks_words = ("--s3-port", str(s3_port), "--postgres", postgres)
        self._version = version

    def _source(self) -> Sequence[str]:
        self._start_kafka()
        if self._version != KAFKA_4_VERSION:
            return ()
        return ("--topics", FROM_KAFKA, "--bootstrap-servers", self._kafka)

    def _prepare(self, name: str) -> tuple[str, ...]:
        where = ("--bootstrap-servers", self._kafka)
        return ("tests.integration.exact_driver", "--name", name, *where, *self._sinks_words)

    def _start_kafka(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        folder = self.folder / "kafka"
        newer = self._version == KAFKA_4_VERSION
        kafka: KafkaBroker = EmbeddedKRaft(folder) if newer else EmbeddedKafka(self.zookeeper.hosts, folder)
        self._stack.callback(kafka.kill)
        kafka.start()
        self._kafka = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": self._kafka})
        admin.create_topics([NewTopic(TOPIC, self.partitions, 1)])[TOPIC].result(PATIENCE_S)
        what = ["--topic", TOPIC, "--partitions", str(self.partitions), "--rate", str(self.rate)]
        self._child("producer", "zkcoord.demo.producer", *what, "--bootstrap-servers", self._kafka)

    def storm(self, seconds: float) -> None:
        """Records come once all drivers share the topic. While a loaded machine starts three Sparks for a minute, they
        would become one batch, which takes another one, and for which the other drivers wait."""
        self.wait("the drivers to join", lambda: all(self.events(name, "fetch_started") for name in self.drivers))
        self._begin("producer")
        super().storm(seconds)

    def _end_of_records(self) -> dict[int, int]:
        self._children["producer"].stop(int(PATIENCE_S * 1_000))
        (said,) = self.events("producer", "produced")
        return {int(partition): count for partition, count in said["records"].items()}

    def outputs(self) -> Iterable[Output]:
        """The Parquet files."""
        return read_outputs(self._places.output)


class TablesScene(SparkScene):
    """Batches go into tables that know their ends, and into ranges on S3."""

    within_s = 2.0

    def __init__(self, folder: Path, seed: int, s3_port: int, version: str) -> None:
        super().__init__(folder, seed, s3_port, version)
        assert isinstance(self.sinks, TableSinks)
        self.sinks.prepare()
        self.tables = self.sinks


class PlainScene(Scene):
    """With logs that grow by the clock."""

    drivers: ClassVar[Mapping[str, str]] = {"a": "finish", "b": "cancel", "c": "finish", "d": "cancel"}
    partitions = 8
    within_s = 0.15
    sleep_s = 3.0
    rate = 200  # of each partition
    program = "tests.integration.exact_plain"

    def __init__(self, folder: Path, seed: int, made: type[PlainSinks] = PlainSinks) -> None:
        sinks = made(folder)
        super().__init__(folder, seed, sinks)
        self._output = sinks.output
        sinks.output.mkdir()
        self._began_s = 0.0

    def _prepare(self, name: str) -> tuple[str, ...]:
        if not self._began_s:
            self._began_s = time.monotonic()
            topic = json.dumps({"version": 1, "partitions": {str(n): [1] for n in range(self.partitions)}}).encode()
            nodes = (CreateNode("/brokers"), CreateNode(TOPICS), CreateNode(f"{TOPICS}/{TOPIC}", topic))
            assert not self.tree.commit(Transaction(writes=nodes)).reason
        return (self.program, "--rate", str(self.rate), "--began-s", str(self._began_s))

    def _end_of_records(self) -> dict[int, int]:
        total = int((time.monotonic() - self._began_s) * self.rate) + self.rate  # before they have so many
        (self.folder / "draft").write_text(str(total))
        (self.folder / "draft").replace(self.folder / TOTAL)
        return dict.fromkeys(range(self.partitions), total)

    def outputs(self) -> Iterable[Output]:
        """The files."""
        for path in sorted(self._output.glob("*.json")):
            yield Output(parse_range(path.stem), json.loads(path.read_text()))


class PlainTablesScene(PlainScene):
    """Their batches go into tables that know their ends."""

    drivers: ClassVar[Mapping[str, str]] = {"a": "finish", "b": "cancel", "c": "finish"}
    within_s = 0.3
    program = "tests.integration.exact_plain_tables"

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed, PlainTableSinks)
        assert isinstance(self.sinks, PlainTableSinks)
        self.sinks.prepare()
        self.written = self.sinks.written

    def short_storm(self) -> None:
        """Kill until heirs have shared a batch. Then let one sleep until its batch was replayed meanwhile: it wakes as
        a zombie."""
        self._until(self.shared, self.kill_in_batch, len(self.drivers))
        before = len(self.batches(replayed=True))
        self._until(lambda: len(self.batches(replayed=True)) > before, self.sleep, 2)

    def _until(self, holds: Callable[[], object], misfortune: Callable[[], None], working: int) -> None:
        """A misfortune can meet an idle driver: so it comes again while so many drivers work, at most KILLS_MAX
        times."""

        def work() -> bool:
            return len([name for name in self.drivers if self._works(name)]) >= working

        self.wait("drivers to work", work)
        for _ in range(KILLS_MAX):
            misfortune()
            self.wait("what comes of it", lambda: holds() or work())
            if holds():
                return

    def shared(self) -> list[Event]:
        """Batches that died, and whose ranges several drivers have replayed."""
        replayed = [(n, {*e["ranges"]}) for n in self.drivers for e in self.events(n, "batch_started") if e["replayed"]]
        first = self.batches(replayed=False)
        return [each for each in first if len({name for name, ranges in replayed if ranges & {*each["ranges"]}}) > 1]
