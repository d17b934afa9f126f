"""What an offset store costs: commits of one consumer, and a hand-over, in each store, in the same run.

    python benchmarks/stores.py [--quick] [--json FILE]

One coordinator and two real consumers that do nothing, on an embedded ZooKeeper and broker, in one process; a group of
its own for each store and run. The stores alternate; the medians are compared.

commits    from `Consumer.commit` of every partition to its return, again and again: partitions a second
hand-over  from the second consumer's start to the moment at which each may read its half
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from kafka_log import TOPIC, create_topic
from verdict import Measure, arguments, conclude

from zkcoord import Consumer, Coordinator, TopicPartition
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.operating.requesting import edit_record
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

STORES = ("zookeeper", "dual", "kafka")
DEADLINE_SECONDS = 120.0
TURN_SECONDS = 0.002
GOAL_PER_S = 20_000  # commits of one consumer to ZooKeeper; a quick run has small commits, and no goal


class Member:
    """A consumer that reads nothing."""

    def __init__(self, zookeeper: str, servers: str, group: str) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.starts = 0  # how many partitions were started
        self.consumer = Consumer(
            *(zookeeper, group, [TOPIC]),
            on_start=self._start,
            on_stop=self._stop,
            on_lost=self._stop,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
            bootstrap_servers=servers,
        )
        self.consumer.start()

    def _start(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = {**self.positions, **positions}
        self.starts += len(positions)

    def _stop(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        gone = {p: self.positions[p] for p in partitions if p in self.positions}
        self.positions = {p: at for p, at in self.positions.items() if p not in gone}
        return gone

    def reads(self) -> int:
        """Return how many partitions it may read now."""
        return sum(map(self.consumer.allowed, self.positions))

    def commit_all(self) -> None:
        """Commit as if one more record of each partition was processed."""
        self.positions = {p: at + 1 for p, at in self.positions.items()}
        self.consumer.commit(self.positions)


def await_that(members: list[Member], each: int) -> None:
    """Wait until each member may read this number of partitions."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(member.reads() != each for member in members):
        assert time.monotonic() < deadline, [member.reads() for member in members]
        threading.Event().wait(TURN_SECONDS)


def run(tree: Tree, zookeeper: str, servers: str, group: str, store: str, partitions: int, commits: int) -> list[float]:
    """Return the partitions committed in a second, and the seconds of a hand-over."""
    edit_record(tree, DRAFT, group, lambda record: replace(record, store_name=store, store_step=1), new=True)
    with ExitStack() as stack:
        first = Member(zookeeper, servers, group)
        stack.callback(first.consumer.stop)
        await_that([first], partitions)
        first.commit_all()  # opens the connections
        began = time.monotonic()
        for _ in range(commits):
            first.commit_all()
        rate = partitions * commits / (time.monotonic() - began)
        began = time.monotonic()
        second = Member(zookeeper, servers, group)
        stack.callback(second.consumer.stop)
        await_that([first, second], partitions // 2)
        return [rate, time.monotonic() - began]


@contextmanager
def world(partitions: int) -> Iterator[tuple[str, str, Tree]]:
    """Start everything, with TOPIC and a coordinator that serves; return ZooKeeper's and Kafka's addresses, and the
    tree."""
    with (
        EmbeddedZooKeeper(fsync=False, jvm_options=LONG_LIVED) as zookeeper,
        EmbeddedKafka(zookeeper.hosts, jvm_options=LONG_LIVED) as kafka,
    ):
        create_topic(kafka.bootstrap_servers, partitions)
        serving = threading.Event()
        coordinator = Coordinator(zookeeper.hosts, on_serving=lambda _number, _epoch: serving.set())
        coordinator.start()
        assert serving.wait(DEADLINE_SECONDS)
        with Tree(zookeeper.hosts) as tree:
            yield zookeeper.hosts, kafka.bootstrap_servers, tree
        coordinator.stop()


def main() -> int:
    """Run it; the exit code."""
    options = arguments(__doc__).parse_args()
    partitions, commits, runs = (100, 5, 1) if options.quick else (1_000, 20, 5)
    found: dict[str, list[list[float]]] = defaultdict(list)
    with world(partitions) as (zookeeper, servers, tree):
        for number in range(runs):
            for store in STORES:
                told = run(tree, zookeeper, servers, f"{store}-{number}", store, partitions, commits)
                found[store].append(told)
    rates = {store: statistics.median(rate for rate, _ in told) for store, told in found.items()}
    moves = {store: statistics.median(seconds for _, seconds in told) for store, told in found.items()}
    goals = {} if options.quick else {"zookeeper": GOAL_PER_S}
    measures = [Measure(f"{store}_commits_per_s", rates[store], goals.get(store)) for store in STORES]
    measures += [Measure(f"{store}_handover_ms", 1000 * moves[store]) for store in STORES]
    measures += [Measure(f"{store}_handover_vs_zookeeper", moves[store] / moves[STORES[0]]) for store in STORES[1:]]
    return conclude(measures, {"partitions": partitions, "runs": found}, options.json)


if __name__ == "__main__":
    sys.exit(main())
