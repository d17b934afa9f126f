"""Offsets in both stores and in Kafka, on real servers, with live members.

Resets by zkcoord's tool, offsets that somebody writes under a stop, a topic created again with fewer partitions, and a
tree that is restored from a backup.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from tests.integration.brokers import BOTH
from tests.integration.stores_world import REBALANCE_MS, SESSION_MS, Cluster, Reader, soon
from tests.integration.test_old_brokers import done, run
from tests.integration.test_stores_real import IN_KAFKA, WAYS, equal, read_in
from tests.kafka.helpers import PATIENCE_SECONDS
from tests.waiting import wait_until
from zkcoord import Consumer, Coordinator, TopicPartition
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import TOPICS
from zkcoord.tree.snapshot import Read, parents
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

COPY = "/copy"
COPIED = ("/cluster/id", "/brokers/ids/0")
"""What brokers write beside their topics, and a copied ensemble has, too."""


@pytest.fixture(scope="module", params=BOTH)
def servers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster({}, version=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(2)
    return servers


class Holder:
    """A program that holds its partitions and reads nothing. Its stops wait for `go_on`, and end at `stops_at`."""

    def __init__(self, cluster: Cluster, stops_at: int) -> None:
        self.begun: dict[TopicPartition, int] = {}
        self.stopping: tuple[TopicPartition, ...] = ()
        self.go_on = threading.Event()
        self._stops_at = stops_at
        self.consumer = Consumer(
            *(cluster.zookeeper, cluster.group, [cluster.topic]),
            on_start=self.begun.update,
            on_stop=self._stop,
            on_lost=lambda partitions: None,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
            bootstrap_servers=cluster.servers,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=4 * REBALANCE_MS,
        )

    def _stop(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        self.stopping = partitions
        assert self.go_on.wait(PATIENCE_SECONDS)
        return dict.fromkeys(partitions, self._stops_at)


@IN_KAFKA
@pytest.mark.parametrize("goal", [5, 26], ids=["rewind", "skip"])
def test_a_reset_that_stops_live_members_first_wins_in_both_directions(cluster: Cluster, store: str, goal: int) -> None:
    """What members have fetched and not handed out yet when they are stopped is thrown away."""
    readers = [read_in(cluster, store)]
    readers.append(Reader(cluster))
    soon(cluster, "each holds one", lambda: [len(reader.consumer.assignment()) for reader in readers] == [1, 1])
    for reader in readers:
        reader.halt()
    cluster.produce(10, 0, 1)
    before = [len(reader.offsets(n)) for reader in readers for n in (0, 1)]
    refused = run(cluster, "group", "reset-offsets", cluster.group, "--to-offset", str(goal))
    assert (refused.exit_code, "or give --stop-first" in refused.output) == (2, True), refused.output

    words = ("group", "reset-offsets", cluster.group, "--to-offset", str(goal), "--stop-first")
    rows = [json.loads(line) for line in done(cluster, *words).splitlines()]
    assert [(row["partition"], row["before"], row["after"]) for row in rows] == [(0, 20, goal), (1, 20, goal)]
    for reader in readers:
        reader.go_on()
    soon(cluster, "the rest is committed", lambda: equal(cluster, {0: 30, 1: 30}))
    for reader in readers:
        reader.leave()
    after = [reader.offsets(n) for reader in readers for n in (0, 1)]
    read = [offsets[seen:] for offsets, seen in zip(after, before, strict=True)]
    assert [read[0] + read[2], read[1] + read[3]] == [list(range(goal, 30))] * 2


@pytest.mark.parametrize("goal", [15, 26], ids=["rewind", "skip"])
def test_f241_a_reset_wins_over_what_another_program_committed_to_kafka_before_it(cluster: Cluster, goal: int) -> None:
    """Somebody had tried Kafka's own tool while nobody read: its commit lies behind, and would be followed."""
    read_in(cluster, "kafka").leave()
    cluster.produce(10, 0, 1)
    cluster.commit_as_stranger({0: 5, 1: 5})
    assert cluster.offsets_in_kafka() == {0: 5, 1: 5}
    rows = done(cluster, "group", "reset-offsets", cluster.group, "--to-offset", str(goal)).splitlines()
    assert [json.loads(row)["after"] for row in rows] == [goal, goal]
    successor = Reader(cluster)
    soon(cluster, "the rest is committed", lambda: equal(cluster, {0: 30, 1: 30}))
    successor.leave()
    assert [successor.offsets(n) for n in (0, 1)] == [list(range(goal, 30))] * 2
    assert not cluster.reports.of("foreign_offset")


@pytest.mark.parametrize("goal", [15, 26], ids=["backwards", "forwards"])
def test_f246_a_paused_group_goes_on_where_an_import_says_though_a_stranger_had_committed(
    cluster: Cluster, goal: int, tmp_path: Path
) -> None:
    reader = read_in(cluster, "kafka")
    cluster.produce(10, 0, 1)
    soon(cluster, "all is committed", lambda: equal(cluster, {0: 30, 1: 30}))
    before = [len(reader.offsets(n)) for n in (0, 1)]
    done(cluster, "group", "pause", cluster.group)
    cluster.commit_as_stranger({0: 5, 1: 5})
    file = tmp_path / "offsets"
    file.write_text("".join(f"/consumers/{cluster.group}/offsets/{cluster.topic}/{n}:{goal}\n" for n in (0, 1)))
    done(cluster, "offsets", "import", str(file))
    done(cluster, "group", "resume", cluster.group)
    soon(cluster, "the rest is committed", lambda: equal(cluster, {0: 30, 1: 30}))
    reader.leave()
    assert [reader.offsets(n)[seen:] for n, seen in enumerate(before)] == [list(range(goal, 30))] * 2


@IN_KAFKA
def test_f54_next_owner_starts_at_an_offset_that_somebody_wrote_during_the_stop(cluster: Cluster, store: str) -> None:
    """The stopped owner's final offset is refused in ZooKeeper, and what it has in Kafka counts no more."""
    cluster.produce(20, 0, 1)
    old, late = Holder(cluster, stops_at=12), Holder(cluster, stops_at=9)
    with ExitStack() as stack:
        stack.enter_context(old.consumer)
        stack.callback(old.go_on.set)
        soon(cluster, "it has both", lambda: len(old.begun) == 2)
        cluster.move(*WAYS[store])
        old.consumer.commit({cluster.partition(0): 10, cluster.partition(1): 10})
        soon(cluster, "both are committed", lambda: equal(cluster, {0: 10, 1: 10}))
        stack.enter_context(late.consumer)
        stack.callback(late.go_on.set)
        soon(cluster, "one is being stopped", lambda: len(old.stopping) == 1)
        (moved,) = old.stopping
        cluster.set_node(moved.partition, 7)
        old.go_on.set()
        soon(cluster, "the next one has it", lambda: late.consumer.allowed(moved))
        assert late.begun == {moved: 7}
        late.consumer.commit({moved: 9})
        soon(cluster, "it is committed", lambda: equal(cluster, {moved.partition: 9, 1 - moved.partition: 10}))
    (told,) = cluster.reports.of("foreign_offset")
    assert str(moved) in str(told)


@IN_KAFKA
def test_f32_a_topic_created_again_with_fewer_partitions_is_read_from_its_beginning(
    servers: Cluster, store: str
) -> None:
    """Also the partitions that it gets back later: nothing of the earlier topic counts for them."""
    cluster = servers
    cluster.begin(4)
    reader = Reader(cluster)
    soon(cluster, "it reads", lambda: len(reader.consumer.assignment()) == 4)
    cluster.move(*WAYS[store])
    cluster.produce(20, *range(4))
    soon(cluster, "all are committed", lambda: equal(cluster, dict.fromkeys(range(4), 20)))
    cluster.delete()
    cluster.create(2)
    cluster.produce(30, 0, 1)
    soon(cluster, "the new one is committed", lambda: equal(cluster, {0: 30, 1: 30}))
    again = [reader.offsets(n)[20:] for n in range(4)]
    if cluster.source:  # until the other id counts, the new topic is read from the earlier one's offsets (F153)
        again = [offsets[-30:] for offsets in again]
    assert again == [list(range(30))] * 2 + [[]] * 2
    cluster.admin.create_partitions([NewPartitions(cluster.topic, 4)])[cluster.topic].result(PATIENCE_SECONDS)
    soon(cluster, "it has four again", lambda: len(reader.consumer.assignment()) == 4)
    cluster.produce(5, 2, 3)
    soon(cluster, "all are committed", lambda: equal(cluster, {0: 30, 1: 30, 2: 5, 3: 5}))
    assert [reader.offsets(n)[20:] for n in (2, 3)] == [list(range(5))] * 2
    reader.leave()


def test_f50_a_group_restored_into_another_chroot_goes_on_from_its_nodes_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    """What members of the old tree committed to Kafka, before the backup and after it, does not count in the copy."""
    read_in(cluster, "kafka").leave()  # its release writes the nodes
    reader = Reader(cluster)
    cluster.produce(15, 0, 1)
    soon(cluster, "Kafka is ahead of the nodes", lambda: equal(cluster, {0: 35, 1: 35}))
    assert cluster.nodes() == {0: 20, 1: 20}
    file = str(tmp_path / "backup")
    done(cluster, "backup", file)
    cluster.produce(5, 0, 1)
    soon(cluster, "the old tree's members go on", lambda: equal(cluster, {0: 40, 1: 40}))
    reader.leave()

    copy = cluster.zookeeper + COPY
    copy_topic(cluster)
    (row,) = [
        json.loads(line)
        for line in done(cluster, "--zookeeper", copy, "restore", file, "--group", cluster.group).splitlines()
    ]
    assert (row["offsets"], row["created"]) == (2, 2)
    coordinator = Coordinator(copy, **cluster.source)
    coordinator.start()
    try:
        there = Reader(cluster, copy)
        soon(cluster, "the copy reads to the end", lambda: there.has(0, 40) and there.has(1, 40))
        wait_until(
            lambda: cluster.offsets_in_kafka() == {0: 40, 1: 40} and counts(cluster, copy) == [40, 40], "committed"
        )
        assert there.offsets(0) == there.offsets(1) == list(range(20, 40))
        there.leave()
    finally:
        coordinator.stop()


def copy_topic(cluster: Cluster) -> None:
    """Let the copy's tree have what the brokers wrote, as a copied ensemble has it; Kafka 4 is asked."""
    with Tree(cluster.zookeeper) as tree:
        if cluster.source:
            assert not tree.commit(Transaction(writes=(CreateNode(COPY),))).reason
            return
        wanted = [f"{TOPICS}/{cluster.topic}", *COPIED]
        for node in tree.read([Read(path) for path in wanted]):
            above = [f"{COPY}{path}" for path in parents(node.path)]
            missing = [each.path for each in tree.read([Read(path) for path in (COPY, *above)]) if not each.exists]
            writes = (*map(CreateNode, missing), CreateNode(f"{COPY}{node.path}", node.data))
            assert not tree.commit(Transaction(writes=writes)).reason


def counts(cluster: Cluster, zookeeper: str) -> list[int]:
    """The offsets that count in this tree, partition by partition."""
    rows = done(cluster, "--zookeeper", zookeeper, "offsets", "verify", cluster.group).splitlines()
    return [json.loads(line)["counts"] for line in rows]
