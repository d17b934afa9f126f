"""What the doctor reads of a tree."""

from __future__ import annotations

import pytest

from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.record import GroupRecord
from zkcoord.core.severity import Severity
from zkcoord.doctor import kafka
from zkcoord.doctor.asking import ask_groups, ask_tree
from zkcoord.migrate import upgrade
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record


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
