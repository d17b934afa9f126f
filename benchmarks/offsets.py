"""What the tools of offsets do in a second: comparing both stores, against a plain loop, and writing either of them.

Groups of one topic, each with an offset of every partition in both stores, on an embedded ZooKeeper and broker.

verify          from the call to the last group's verdict: all offsets from ZooKeeper and Kafka, and the logs' bounds
plain loop      the same offsets without bounds: group by group one OffsetFetch, and a pipelined read of each node
import, export  `write_offsets` (each offset is read, set by its version and read again), and `export` into a list
commit          `KafkaCommits.commit`, group by group

The verification and the plain loop alternate; the medians are compared.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

from kafka_log import TOPIC, create_topic
from kazoo.client import KazooClient
from verdict import Measure, arguments, conclude

from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import upgrade
from zkcoord.offsets.export import export
from zkcoord.offsets.kafka_logs import known_logs
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.verdict import Verdict
from zkcoord.offsets.verify import verify
from zkcoord.offsets.writing import write_offsets
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CheckNode, CreateNode, Transaction

GOAL = 2.0  # times the plain loop


class Deployment:
    """Groups in the store `dual`, whose two offsets of each partition are equal."""

    def __init__(self, tree: Tree, client: KafkaClient, groups: int, partitions: int) -> None:
        self.tree, self.client, self.store = tree, client, KafkaCommits(client, timeout_ms=60_000)
        self.groups = [f"g{number:03}" for number in range(groups)]
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]

    def write(self) -> None:
        """Make the groups, with their offsets in ZooKeeper."""
        record = encode_record(GroupRecord(store_name="dual"))
        for group in self.groups:
            self.tree.commit(Transaction(writes=(CreateNode(DRAFT.record(group), record),)))
            wanted, made = dict.fromkeys(self.partitions, 0), CheckNode(DRAFT.record(group), 0)
            write_offsets(self.tree, DRAFT, group, wanted, guard=[made], why="a benchmark")

    def commit(self) -> None:
        """Commit the same offsets to Kafka, each in the tenure of its node."""
        for group in self.groups:
            nodes = self.tree.read([Read(DRAFT.offset(group, partition)) for partition in self.partitions])
            stamps = [Stamp(tenure=Tenure("", node.stat.mzxid)) for node in nodes if node.stat is not None]
            commits = [KafkaCommit(offset=0, stamp=stamp) for stamp in stamps]
            outcome = self.store.commit(group, dict(zip(self.partitions, commits, strict=True)))
            if (error := outcome.error()) is not None:
                raise error

    def verify(self) -> None:
        """Verify as `zkcoord offsets verify --all-groups` does, without printing."""
        found = verify(self.tree.read, self.store, known_logs(self.client), DRAFT, self.groups)
        equal = sum(row.judged.verdict is Verdict.EQUAL for group in found for row in group.partitions)
        assert equal == len(self.groups) * len(self.partitions), equal

    def plain(self, kazoo: KazooClient) -> None:
        """Read the same offsets with a simple loop."""
        for group in self.groups:
            there = self.store.read([group]).found[group]
            asked = [(p, kazoo.get_async(DRAFT.offset(group, p))) for p in self.partitions]
            assert all(int(answer.get()[0]) == there[p].offset for p, answer in asked)


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def measured(world: Deployment, hosts: str, runs: int) -> tuple[list[Measure], dict[str, Sequence[float]]]:
    """All figures."""
    many = len(world.groups) * len(world.partitions)
    imported, committed = seconds(world.write), seconds(world.commit)
    exported = seconds(lambda: list(export(world.tree.read, DRAFT, world.groups)))
    ours, plain = [seconds(world.verify)], []
    kazoo = KazooClient(hosts)
    kazoo.start(timeout=30)
    for _ in range(runs):
        plain.append(seconds(lambda: world.plain(kazoo)))
        ours.append(seconds(world.verify))
    kazoo.stop()
    kazoo.close()
    verified, looped = statistics.median(ours), statistics.median(plain)
    measures = [
        Measure("verify_vs_plain_loop", looped / verified, GOAL),
        Measure("verify_partitions_per_s", many / verified),
        Measure("verify_s", verified),
        Measure("import_offsets_per_s", many / imported),
        Measure("export_offsets_per_s", many / exported),
        Measure("kafka_commits_per_s", many / committed),
    ]
    return measures, {"verify_s": ours, "plain_s": plain}


def main() -> int:
    """Run it; the exit code."""
    options = arguments(__doc__).parse_args()
    groups, partitions, runs = (10, 100, 2) if options.quick else (100, 1_000, 5)
    with (
        EmbeddedZooKeeper(fsync=False, jvm_options=LONG_LIVED) as zookeeper,
        EmbeddedKafka(zookeeper.hosts, jvm_options=LONG_LIVED) as kafka,
    ):
        create_topic(kafka.bootstrap_servers, partitions)
        with Tree(zookeeper.hosts) as tree, KafkaClient(kafka.bootstrap_servers, timeout_ms=60_000) as client:
            upgrade(tree, run_id="benchmark")
            measures, details = measured(Deployment(tree, client, groups, partitions), zookeeper.hosts, runs)
    return conclude(measures, {"groups": groups, "partitions": partitions, **details}, options.json)


if __name__ == "__main__":
    sys.exit(main())
