"""What the doctor reads of a tree."""

from __future__ import annotations

import pytest

from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.record import GroupRecord
from zkcoord.core.severity import Severity
from zkcoord.doctor import kafka, limits
from zkcoord.doctor.asking import ask_groups, ask_server, ask_tree
from zkcoord.doctor.facts import TreeFacts
from zkcoord.embedded.zookeeper import EmbeddedZooKeeper
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.codec import compact
from zkcoord.tree.paths import CANDIDATES, DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read


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

    found = [each for each in kafka.judge(ask_tree(tree), None, []) if "not asked" not in each.what]

    assert [each.severity for each in found] == [severity]


@pytest.mark.parametrize(("handed_over", "left"), [("begun", False), ("done", True), (None, False)])
def test_a_group_is_left_to_kafkas_consumers_once_its_hand_over_is_done(handed_over: str | None, left: bool) -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="test")
    pause = {"run": "r"} if handed_over is None else {"run": "r", "handed_over": handed_over}
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", wish={"pause": pause})))
    [found] = ask_groups(tree, lambda _group: ["app"])
    assert (found.users, found.left_to_kafka) == (("app",), left)


def test_a_coordinators_clock_that_is_ahead_of_zookeepers_is_told_and_how_long_its_lists_are() -> None:
    tree = MemoryTree("/brokers/topics", "/brokers/topics/clicks", "/zkcoord/coordinators")
    for name, since in (("0", "2200-01-01T00:00:00+00:00"), ("1", "1969-01-01T00:00:00+00:00"), ("2", "now"), ("3", 7)):
        tree.set(f"{CANDIDATES}/{name}", compact({"host": "a", "since": since}))

    found = ask_tree(tree)

    assert list(found.candidates_ahead_ms) == ["0"] and found.candidates_ahead_ms["0"] > 7 * 10**12
    assert (found.listing_bytes["/brokers/topics"], found.listing_bytes[CANDIDATES]) == (10, 20)


@pytest.mark.zookeeper
def test_what_a_server_that_allows_all_words_tells_of_its_disk_its_limits_and_its_sessions() -> None:
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
