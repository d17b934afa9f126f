"""What the doctor reads of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.cli.group_tree import P0, P1, A, World
from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.record import GroupRecord, Request
from zkcoord.core.severity import Severity
from zkcoord.core.state import Failure, GroupState, Quarantine
from zkcoord.doctor import kafka, limits
from zkcoord.doctor.asking import READS_TIMED, ask_groups, ask_kafka, ask_server, ask_tree
from zkcoord.doctor.facts import KafkaFacts, TreeFacts
from zkcoord.embedded.zookeeper import EmbeddedZooKeeper
from zkcoord.kafka import cluster
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import served, upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.codec import compact
from zkcoord.tree.paths import CANDIDATES, CLUSTER_ID, DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.state import encode_state


@pytest.mark.parametrize(
    ("migration", "epoch", "severity"),
    [
        (b'{"version":0,"kraft_controller_id":-1}', -1, Severity.OK),  # before the move, or after it was taken back
        (b'{"version":0,"kraft_controller_id":3000}', -1, Severity.WARN),
        (b"", 1, Severity.WARN),
    ],
)
def test_a_move_to_kraft_is_found_when_a_kraft_controller_is_named(
    migration: bytes, epoch: int, severity: Severity
) -> None:
    tree = MemoryTree("/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/topics", "/zkcoord/coordinators")
    tree.nodes["/migration"] = migration, 0
    tree.nodes["/controller"] = b'{"version":2,"brokerid":1,"kraftControllerEpoch":%d}' % epoch, 0

    found = [each for each in kafka.judge(ask_tree(tree, wait_s=0.0), None, []) if "not asked" not in each.what]

    assert found[0].severity is severity


class Moving(MemoryTree):
    """Brokers that move; the controller has written once more when the tree is read for the `writes`-th time."""

    def __init__(self, writes: int) -> None:
        super().__init__("/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/topics", "/zkcoord/coordinators")
        self.nodes["/migration"] = self.written(25), 7
        self.left = writes

    @staticmethod
    def written(offset: int) -> bytes:
        return b'{"version":0,"kraft_metadata_offset":%d,"kraft_controller_id":3000}' % offset

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        if Read("/migration") in reads:
            self.left -= 1
            self.set("/migration", self.written(26 if self.left <= 0 else 25))  # a failing one writes the same
        return super().read(reads)


@pytest.mark.parametrize(
    ("writes", "wait_s", "severity", "words"),
    [
        (3, 60.0, Severity.OK, "the KRaft controllers write to ZooKeeper"),
        (9, 0.0, Severity.ERR, "the KRaft controllers do not write to ZooKeeper"),
    ],
)
def test_it_looks_whether_the_controllers_write_while_brokers_move(
    writes: int, wait_s: float, severity: Severity, words: str
) -> None:
    facts = ask_tree(Moving(writes), wait_s=wait_s, look_s=0.0)
    _, found = [each for each in kafka.judge(facts, None, []) if "not asked" not in each.what]
    assert (found.severity, found.what.partition(":")[0]) == (severity, words)


@pytest.mark.parametrize(("handed_over", "left"), [("begun", False), ("done", True), ("", False)])
def test_a_group_is_left_to_kafkas_consumers_once_its_hand_over_is_done(handed_over: str, left: bool) -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="test")
    pause = Request(run="r", handed_over=handed_over)
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", requests={"pause": pause})))
    [found] = ask_groups(tree, lambda _group: ["app"])
    assert (found.users, found.left_to_kafka) == (("app",), left)


def test_a_coordinators_clock_that_is_ahead_of_zookeepers_is_told_and_how_long_its_lists_are() -> None:
    tree = MemoryTree("/brokers/topics", "/brokers/topics/clicks", "/zkcoord/coordinators")
    for name, since in (("0", "2200-01-01T00:00:00+00:00"), ("1", "1969-01-01T00:00:00+00:00"), ("2", "now"), ("3", 7)):
        tree.set(f"{CANDIDATES}/{name}", compact({"host": "a", "since": since}))

    found = ask_tree(tree)

    assert list(found.candidates_ahead_ms) == ["0"] and found.candidates_ahead_ms["0"] > 7 * 10**12
    assert (found.listing_bytes["/brokers/topics"], found.listing_bytes[CANDIDATES]) == (10, 20)


def test_the_tree_tells_of_coordinators_brokers_and_topics() -> None:
    tree = MemoryTree("/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/topics", "/brokers/topics/clicks")
    upgrade(tree, run_id="test")
    candidate = {"host": "a", "version": "1.0"}
    for path, said in ((f"{CANDIDATES}/0", compact(candidate)), (CLUSTER_ID, b'{"version":"1","id":"A"}')):
        tree.set(path, said)
    tree.set(DRAFT.coordinator, b"0")

    found = ask_tree(tree, logs_in=True)

    assert len(found.read_ms) == READS_TIMED
    assert replace(found, read_ms=()) == TreeFacts(
        logs_in=True,
        brokers=1,
        topics=1,
        cluster_id="A",
        revision=served()[-1],
        served=served(),
        serving="0",
        candidates=(candidate,),
        candidate_sessions=(0,),
        listing_bytes={"/brokers/ids": 5, "/brokers/topics": 10, CANDIDATES: 5},
    )
    assert replace(ask_tree(MemoryTree()), read_ms=()) == TreeFacts(served=served())


def test_the_tree_tells_of_a_group() -> None:
    tree = MemoryTree("/brokers", "/brokers/ids", "/brokers/topics", "/consumers", "/consumers/zkcoord")
    world = World(tree, "memory")  # type: ignore[arg-type]
    world.settle()
    state = GroupState(
        generation=7,
        failed=Failure(error="it did not answer", since_generation=6),
        quarantined={P1: Quarantine("it fell", 1)},
    )
    world.put(DRAFT.state("g"), encode_state(state))
    world.put(DRAFT.owner("g", P0), b"{")
    world.put(DRAFT.offset("g", P0), b"no number")

    (found,) = [each for each in ask_groups(tree, lambda _group: ()) if each.group == "g"]

    assert [member.consumer_id for member in found.members] == [A]
    assert dict(found.clock_ahead_ms) == {A: 1}
    assert (found.failed, found.quarantined, found.problems > 0) == (True, 1, True)
    assert (found.mode, found.store, found.users) == ("coordinated", "zookeeper", ())


def test_the_brokers_answers_are_judged_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = cluster.Cluster(3, "A", {"log.dirs": "x"}, gone=(2,), leaderless=("clicks-1",))
    with KafkaClient("127.0.0.1:1", timeout_ms=500) as nobody:
        silent = ask_kafka(nobody)
        monkeypatch.setattr(cluster, "describe_cluster", lambda client: told)
        found = ask_kafka(nobody)
    assert found == KafkaFacts(brokers=3, cluster_id="A", config=told.config, gone=(2,), leaderless=("clicks-1",))
    assert silent.unreachable is not None and "127.0.0.1:1" in silent.unreachable


@pytest.mark.zookeeper
def test_an_open_server_tells_of_its_disk_limits_and_sessions() -> None:
    with EmbeddedZooKeeper(fsync=False, settings={"4lw.commands.whitelist": "*"}) as server, Tree(server.hosts) as tree:
        tree.read([Read("/")])
        host, _, port = server.hosts.partition(":")
        found = ask_server(host, int(port))

    assert (found.refused, found.conf["minSessionTimeout"], list(found.dirs)) == (
        (),
        "1000",
        ["datadir_size", "logdir_size"],
    )
    assert [1_000 <= timeout_ms <= 10_000 for timeout_ms in found.sessions.values()] == [True]
    told = {each.what: each.severity for each in limits.judge([found], TreeFacts(), [*found.sessions.values()])}
    assert told == {f"{server.hosts}: snapshots and logs": Severity.OK, "limits of session timeouts": Severity.OK}
