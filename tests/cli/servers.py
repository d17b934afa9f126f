"""Fresh servers for what pages print, and `zkcoord` on them: its lines are played as they stand, but for addresses."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from tests.cli.program import Program
from tests.integration.brokers import servers_of
from tests.kafka.topics import create_topic
from zkcoord.embedded.artifacts import KAFKA_VERSION

ZOOKEEPERS = re.compile(r"(?:(?:zk\d|localhost):2181,?)+(?:/kafka)?")
BROKERS = re.compile(r"(?:(?:broker1|kafka\d|localhost):9092,?)+")


class Servers:
    """ZooKeeper and a broker, which programs find in their environment, and programs that end with them."""

    def __init__(self, zookeeper: str, kafka: str, stack: ExitStack) -> None:
        self.zookeeper, self.kafka, self._stack = zookeeper, kafka, stack

    def start(self, *words: str) -> Program:
        """Start `zkcoord`; at the end it is asked to end, and ends with 0."""
        program = Program(*words)
        self._stack.callback(program.close)
        self._stack.callback(self.end, program)
        return program

    @staticmethod
    def end(program: Program, having: str | None = None) -> None:
        """Ask it to end, once it has printed this; nothing is done if it has ended."""
        if having is not None:
            program.line(having=having)
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0

    def call(self, *words: str) -> list[str]:
        """Run `zkcoord` to its end; returns what it printed."""
        program = Program(*words)
        try:
            printed = program.rest()
            assert program.end() == 0, [*printed, *program.rest("stderr")]
        finally:
            program.close()
        return printed

    def fill(self, partitions: int, records: int, topic: str = "clicks") -> None:
        """Make the topic and spread records over its partitions."""
        from confluent_kafka.admin import AdminClient

        create_topic(AdminClient({"bootstrap.servers": self.kafka}), topic, partitions)
        self.produce(partitions, records, topic)

    def produce(self, partitions: int, records: int, topic: str = "clicks") -> None:
        """Spread records over a topic's partitions."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.kafka})
        for number in range(records):
            producer.produce(topic, f"record {number}", partition=number % partitions)
        assert producer.flush(60) == 0

    def owners(self, group: str = "etl") -> set[str]:
        """The consumers that own something of the group."""
        lines = self.call("group", "describe", group, "--wait", "stable")
        return {found[1] for line in lines if (found := re.search(r"(\S+)-0$", line.rstrip()))}

    def words(self, line: str, places: Mapping[str, str] | None = None) -> list[str]:
        """A printed line as arguments, with addresses of these servers, and of `places`."""
        for word, instead in (places or {}).items():
            line = line.replace(word, instead)
        line = BROKERS.sub(self.kafka, ZOOKEEPERS.sub(self.zookeeper, line))
        program, *words = shlex.split(re.split(r" {2,}", line)[0], comments=True)
        assert program == "zkcoord"
        return words

    def play(self, line: str, places: Mapping[str, str] | None = None) -> list[str]:
        """Run a printed line to its end; returns what it printed."""
        return self.call(*self.words(line, places))

    def begin(self, line: str, places: Mapping[str, str] | None = None) -> Program:
        """Start a printed line that runs on."""
        return self.start(*self.words(line, places))


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, version: str = KAFKA_VERSION) -> Iterator[Servers]:
    """Fresh servers, whose addresses are in the environment, with where a coordinator takes topics from."""
    with servers_of(version, {}) as (zookeeper, broker, source):
        kafka = broker.bootstrap_servers
        if source:
            monkeypatch.setenv("ZKCOORD_COORDINATOR_TOPICS", source["topics"])
        monkeypatch.setenv("ZKCOORD_ZOOKEEPER", zookeeper)
        monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", kafka)
        with ExitStack() as programs:
            yield Servers(zookeeper, kafka, programs)
