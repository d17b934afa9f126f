"""Topics from Kafka's metadata against topics from ZooKeeper: how soon a change counts, and what keeping up costs.

    python benchmarks/topics.py [--quick] [--json FILE]

Two parts, each with both sources side by side, one coordinator and one consumer that does nothing, real programs on an
embedded ZooKeeper:

large   10,000 topics with 100,000 partitions. No machine has the files for these on one broker, so Kafka is played by
        `metadata_server.py`, which answers as a broker does; for ZooKeeper the topics' nodes are written.
real    an embedded broker in ZooKeeper mode with topics that exist, for its own time.

grow      from the growth of a topic to the consumer's start of the new partition
cpu       of the coordinator's process while nothing changes, milliseconds a second
poll      one answer, taken in by the client: CPU of its process (the broker's is in another one), and its bytes
broker    CPU of the real broker's process for one answer
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from common import Child
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from metadata_server import MetadataServer, topic_id_of
from verdict import Measure, arguments, conclude

from zkcoord import Consumer, Coordinator, TopicPartition
from zkcoord.core.topic_answers import Kind, Question
from zkcoord.core.topic_mirror import DESCRIBE_MAX
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.kafka.metadata import KafkaMetadata
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.bulk import children
from zkcoord.tree.paths import TOPICS, layout_named
from zkcoord.tree.writes import ANY_VERSION, CreateNode, SetNode, Transaction

SOURCES = ("zookeeper", "kafka")
DEADLINE_SECONDS = 300.0
TURN_SECONDS = 0.002
BATCH = 200  # nodes in one multi


class Serving:
    """A coordinator in a process of its own."""

    def __init__(self, zookeeper: str, source: str, servers: str) -> None:
        asked = {"topics": source, "bootstrap_servers": servers} if source == "kafka" else {}
        serving = threading.Event()
        self._coordinator = Coordinator(zookeeper, on_serving=lambda _number, _epoch: serving.set(), **asked)
        self._coordinator.start()
        assert serving.wait(DEADLINE_SECONDS)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of its process so far."""
        return time.process_time()

    def close(self) -> None:
        """End it."""
        self._coordinator.stop()


@contextmanager
def child(factory: Callable[..., Any], *given: Any) -> Iterator[Child]:
    """Hold an object in a process of its own while the block runs."""
    made = Child(factory, *given)
    try:
        yield made
    finally:
        made.close()


def await_that(holds: Callable[[], bool], what: str) -> float:
    """Wait until the condition holds; return the time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        threading.Event().wait(TURN_SECONDS)
    return time.monotonic()


class Group:
    """A coordinator of one source, and a consumer of one topic."""

    def __init__(self, stack: ExitStack, zookeeper: str, source: str, servers: str, topic: str, topics: int) -> None:
        self.held: set[TopicPartition] = set()
        self._topic = topic
        self.serving = stack.enter_context(child(Serving, zookeeper, source, servers))
        self.serving.ask("cpu_seconds")  # an answer means that it serves
        if source == "kafka":
            tree = stack.enter_context(Tree(zookeeper))
            above = layout_named("draft", "kafka").topics
            await_that(lambda: len(children(tree.read, [above])[0].children) == topics, "every topic is mirrored")
        consumer = Consumer(
            *(zookeeper, f"of-{source}", [topic]),
            on_start=lambda positions: self.held.update(positions),
            on_stop=lambda partitions: dict.fromkeys(partitions, 0),
            on_lost=self.held.difference_update,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
        )
        consumer.start()
        stack.callback(consumer.stop)

    def grown(self, grow: Callable[[int], object], sizes: Sequence[int]) -> list[float]:
        """Return the milliseconds from each growth to the start of the last new partition."""
        await_that(lambda: len(self.held) == sizes[0], f"{self._topic} is read")
        found = []
        for number, size in enumerate(sizes[1:]):
            threading.Event().wait(1 + 0.13 * number)  # so that each growth comes at another moment between two polls
            began = time.monotonic()
            grow(size)
            found.append(1000 * (await_that(lambda size=size: len(self.held) == size, "it is read") - began))  # type: ignore[misc]
        return found

    def idle_cpu_ms(self, seconds: float) -> float:
        """Return the coordinator's CPU milliseconds for each second in which nothing changes."""
        threading.Event().wait(3)
        before, began = self.serving.ask("cpu_seconds"), time.monotonic()
        threading.Event().wait(seconds)
        used = self.serving.ask("cpu_seconds") - before
        return float(1000 * used / (time.monotonic() - began))


def node_of(name: str, partitions: int) -> bytes:
    """Return a topic's node, as a broker writes it."""
    numbered = {str(number): [0, 1, 2] for number in range(partitions)}
    return json.dumps({"version": 3, "topic_id": topic_id_of(name), "partitions": numbered}).encode()


def write_topics(tree: Tree, names: Sequence[str], partitions: int) -> None:
    """Write the nodes of these topics."""
    writes = [CreateNode(path, b"") for path in ("/brokers", TOPICS)]
    writes += [CreateNode(f"{TOPICS}/{name}", node_of(name, partitions)) for name in names]
    for first in range(0, len(writes), BATCH):
        tree.commit(Transaction(writes=tuple(writes[first : first + BATCH]), why="benchmark"))


def cost_of(question: Question, metadata: KafkaMetadata, used: Callable[[], float], runs: int) -> float:
    """Return the median of the milliseconds that `used` counts for one answer."""
    found = []
    metadata.answer(question)
    for _ in range(runs):
        before = used()
        metadata.answer(question)
        found.append(1000 * (used() - before))
    return statistics.median(found)


def large(topics: int, partitions: int, growths: int, seconds: float) -> tuple[dict[str, float], dict[str, Any]]:
    """Measure large metadata from a server that only plays a broker, and topics' nodes without any broker."""
    names = [f"topic-{number:05}" for number in range(topics)]
    sizes, found, raw = [partitions + n for n in range(growths + 1)], dict[str, float](), dict[str, Any]()
    with child(MetadataServer, names, partitions) as server:
        address = server.ask("address")
        with KafkaMetadata(address) as metadata:
            for name, asked in (("list", ()), ("describe", tuple(names[:DESCRIBE_MAX]))):
                question = Question(Kind(name), asked)
                found[f"poll_{name}_cpu_ms"] = cost_of(question, metadata, time.process_time, 5)
                before = server.ask("counted")
                metadata.answer(question)
                after = server.ask("counted")
                found[f"poll_{name}_bytes"] = (after[1] - before[1]) / (after[0] - before[0])
        for source in SOURCES:
            with EmbeddedZooKeeper(fsync=False, jvm_options=LONG_LIVED) as zookeeper, ExitStack() as stack:
                tree = stack.enter_context(Tree(zookeeper.hosts))

                def grow(size: int, source: str = source, tree: Tree = tree) -> None:
                    if source == "kafka":
                        server.ask("grow", size)
                    else:
                        write = SetNode(f"{TOPICS}/{names[0]}", node_of(names[0], size), ANY_VERSION)
                        tree.commit(Transaction(writes=(write,), why="benchmark"))

                if source == "zookeeper":
                    write_topics(tree, names, partitions)
                group = Group(stack, zookeeper.hosts, source, address, names[0], topics)
                raw[f"large_{source}_grow_ms"] = group.grown(grow, sizes)
                found[f"large_{source}_grow_ms"] = statistics.median(raw[f"large_{source}_grow_ms"])
                found[f"large_{source}_cpu_ms_a_second"] = group.idle_cpu_ms(seconds)
    return found, raw


def real(topics: int, partitions: int, growths: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Measure a real broker. Its nodes are in the same ZooKeeper as the coordinator's tree."""
    found, raw = dict[str, float](), dict[str, Any]()
    with (
        EmbeddedZooKeeper(fsync=False, jvm_options=LONG_LIVED) as zookeeper,
        EmbeddedKafka(zookeeper.hosts, jvm_options=LONG_LIVED) as kafka,
    ):
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        names = [f"topic-{number:05}" for number in range(topics)]
        for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            future.result(DEADLINE_SECONDS)

        def used() -> float:
            assert kafka.pid is not None
            return cpu_seconds_of(kafka.pid)

        with KafkaMetadata(servers) as metadata:
            for name, asked in (("list", ()), ("describe", tuple(names[:DESCRIBE_MAX]))):
                question = Question(Kind(name), asked)
                for _ in range(50):  # so that the broker's JVM has compiled the code
                    metadata.answer(question)
                before = used()
                for _ in range(20):
                    metadata.answer(question)
                found[f"broker_{name}_cpu_ms"] = 1000 * (used() - before) / 20
        with Tree(zookeeper.hosts) as tree:
            tree.commit(Transaction(writes=tuple(CreateNode(f"/of-{s}", b"") for s in SOURCES), why="benchmark"))
        for source, topic in zip(SOURCES, names, strict=False):
            with ExitStack() as stack:
                # a tree has one source of topics: the tree with Kafka's metadata is in a chroot beside the brokers' own
                # nodes
                where = zookeeper.hosts if source == "zookeeper" else f"{zookeeper.hosts}/of-kafka"
                group = Group(stack, where, source, servers, topic, topics)

                def grow(size: int, topic: str = topic) -> None:
                    admin.create_partitions([NewPartitions(topic, size)])[topic].result(DEADLINE_SECONDS)

                raw[f"real_{source}_grow_ms"] = group.grown(grow, [partitions + n for n in range(growths + 1)])
                found[f"real_{source}_grow_ms"] = statistics.median(raw[f"real_{source}_grow_ms"])
    return found, raw


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process so far, from Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measures(found: Mapping[str, float]) -> list[Measure]:
    """Return the figures. The goal: a change of a topic that a group names takes effect within a second, in a cluster
    of any size."""
    goals = {"real_kafka_grow_ms": 1_000.0, "large_kafka_grow_ms": 1_000.0}
    return [Measure(name, value, goals.get(name), at_most=True) for name, value in found.items()]


def main() -> int:
    """Run it; the exit code."""
    options = arguments(__doc__).parse_args()
    topics, partitions, growths, seconds = (500, 4, 3, 5.0) if options.quick else (10_000, 10, 7, 20.0)
    there, growing = (20, 2) if options.quick else (200, 10), (3 if options.quick else 7)
    found, raw = large(topics, partitions, growths, seconds)
    of_real, raw_of_real = real(*there, growing)
    details = {"topics": topics, "partitions": topics * partitions, "runs": {**raw, **raw_of_real}}
    return conclude(measures({**found, **of_real}), details, options.json)


if __name__ == "__main__":
    sys.exit(main())
