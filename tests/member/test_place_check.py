"""A member of a group that is read elsewhere reports once where it is read, and once that it is read here again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, PAUSE, GroupRecord, Request
from zkcoord.member.absences import Absences
from zkcoord.member.place_check import ARRIVING, GONE, HANDED_OVER, IDLE_MS, LEAVING
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

MOVED = Moved(state=MoveState.GONE, tree="bb", address="zk2:2181/kafka", run="r1")
LEFT = replace(DEFAULT_RECORD, moved=MOVED)
THERE = GONE.format(address="zk2:2181/kafka")


class Bench:
    """A member's checks, in a tree where all nodes exist. A test sets the group's record."""

    def __init__(self, layout: Layout = DRAFT) -> None:
        self.told: list[tuple[str, str]] = []
        self.record: GroupRecord | bytes | None = None
        self.coordinator = True
        self.layout = layout
        self.checks = Absences("g", [], None, self._event)
        self.session()

    def _event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.told.append((name, fields.get("why", fields["level"])))

    def session(self) -> None:
        self.tracker = Tracker()
        self.checks.begin()
        self.checks.join(self.tracker, self.layout)

    def idle(self, now_ms: int, *, idle: bool = True) -> list[tuple[str, str]]:
        """The events at this time, when the member holds nothing (`idle`) or something. All its reads are answered."""
        self.told.clear()
        for _ in range(2):
            self.checks.member(self.tracker, self.layout, now_ms, idle=idle)
            self.answer()
        return list(self.told)

    def answer(self) -> list[Read]:
        if not self.tracker.asks:
            return []
        asked = self.tracker.take(1)
        for node in self.tracker.answered(1, [self._node(read) for read in asked]):
            self.checks.take(node, self.tracker)
        return asked

    def _node(self, read: Read) -> Node:
        if read.path != self.layout.record("g"):
            return Node(read.path, read.kind, Stat(0, 1, 0) if self.coordinator else None)
        if self.record is None:
            return Node(read.path, read.kind, None)
        text = self.record if isinstance(self.record, bytes) else encode_record(self.record)
        return Node(read.path, read.kind, Stat(0, 1, 0), text)

    def changed(self, record: GroupRecord | bytes | None) -> None:
        """Somebody writes the record."""
        self.record = record
        self.tracker.touch(self.layout.record("g"))


def test_f307_that_the_group_was_moved_is_told_once_with_its_address_and_that_it_is_back() -> None:
    bench = Bench()
    bench.record = LEFT
    assert [*bench.idle(0), *bench.idle(IDLE_MS - 1)] == []
    assert bench.idle(IDLE_MS) == [("group_elsewhere", THERE)]
    assert bench.idle(100_000) == []
    bench.session()
    assert [*bench.idle(100_000), *bench.idle(110_000)] == []  # another session does not report it again
    bench.changed(DEFAULT_RECORD)
    assert bench.idle(120_000) == [("group_here", "notice")]
    assert bench.idle(130_000, idle=False) == []


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (replace(LEFT, moved=replace(MOVED, state=MoveState.LEAVING)), LEAVING.format(address="zk2:2181/kafka")),
        (replace(LEFT, moved=replace(MOVED, state=MoveState.ARRIVING)), ARRIVING.format(address="zk2:2181/kafka")),
        (
            replace(DEFAULT_RECORD, requests={PAUSE: Request(run="r", handed_over="done")}),
            HANDED_OVER.format(group="g"),
        ),
        (replace(DEFAULT_RECORD, requests={PAUSE: Request(run="r")}), None),
        (b"{", None),
        (None, None),
    ],
    ids=["leaving", "arriving", "handed-over", "paused", "unreadable", "no-record"],
)
def test_f307_each_place_is_told_with_who_must_act(record: GroupRecord | bytes | None, why: str | None) -> None:
    bench = Bench()
    bench.record = record
    bench.idle(0)
    assert bench.idle(IDLE_MS) == ([] if why is None else [("group_elsewhere", why)])


def test_a_reading_member_does_not_look_where_its_group_is() -> None:
    bench = Bench()
    bench.record = LEFT
    bench.idle(0, idle=False)
    assert bench.idle(IDLE_MS, idle=False) == []
    bench.idle(IDLE_MS)
    assert bench.idle(2 * IDLE_MS) == [("group_elsewhere", THERE)]
    assert bench.idle(3 * IDLE_MS, idle=False) == [("group_here", "notice")]
    bench.tracker.touch_all()
    assert not [read for read in bench.answer() if read.path == DRAFT.record("g")]
    bench.record = None
    bench.idle(4 * IDLE_MS)
    assert bench.idle(5 * IDLE_MS) == []  # an earlier read does not count any more


def test_nobody_is_asked_to_start_a_coordinator_for_a_group_that_went_elsewhere() -> None:
    for record, told in ((LEFT, ["group_elsewhere"]), (None, ["no_coordinator"])):
        bench = Bench()
        bench.record, bench.coordinator = record, False
        bench.idle(0)
        found = [name for time_ms in (1, 2, 3) for name, _ in bench.idle(time_ms * IDLE_MS)]
        assert found == told


def test_where_groups_are_adopted_the_record_is_read_by_others_and_only_looked_at() -> None:
    bench = Bench(LEGACY)
    bench.idle(0)
    bench.idle(IDLE_MS)
    assert not asks(bench)
    node = Node(LEGACY.record("g"), Kind.DATA, Stat(0, 1, 0), encode_record(LEFT))
    bench.checks.take_record(node)
    assert bench.checks.elsewhere == THERE
    assert bench.idle(IDLE_MS) == [("group_elsewhere", THERE)]


def asks(bench: Bench) -> bool:
    """True when the record is watched, or is asked for."""
    bench.tracker.touch_all()
    return any(read.path == bench.layout.record("g") for read in bench.answer())


def test_a_record_read_by_others_counts_in_adopted_groups_also_after_reading() -> None:
    bench = Bench(LEGACY)
    bench.idle(0)
    bench.checks.take_record(Node(LEGACY.record("g"), Kind.DATA, Stat(0, 1, 0), encode_record(LEFT)))
    bench.idle(1, idle=False)
    bench.idle(2)
    assert bench.idle(IDLE_MS + 2) == [("group_elsewhere", THERE)]


def test_f307_a_further_move_is_told_and_an_unparsable_record_tells_nothing() -> None:
    bench = Bench()
    bench.record = LEFT
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.changed(b"{")
    assert bench.idle(2 * IDLE_MS) == []
    bench.changed(replace(LEFT, moved=replace(MOVED, address="zk3:2181")))
    assert bench.idle(3 * IDLE_MS) == [("group_elsewhere", GONE.format(address="zk3:2181"))]


def test_reading_and_a_new_session_restart_the_idle_time() -> None:
    bench = Bench()
    bench.record = LEFT
    bench.idle(0)
    bench.idle(1, idle=False)
    bench.idle(2)
    assert (bench.idle(IDLE_MS + 1), asks(bench)) == ([], False)
    bench.idle(IDLE_MS + 2)
    assert bench.checks.elsewhere == THERE
    bench.session()
    assert bench.checks.elsewhere is None
    bench.idle(3 * IDLE_MS)
    bench.idle(4 * IDLE_MS - 1)
    assert not asks(bench)


def test_an_answer_from_before_the_reading_is_not_told_again() -> None:
    bench = Bench()
    bench.record = LEFT
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.idle(2 * IDLE_MS, idle=False)
    bench.idle(3 * IDLE_MS)
    bench.told.clear()
    for now_ms in (4 * IDLE_MS, 4 * IDLE_MS + 1):
        bench.checks.member(bench.tracker, bench.layout, now_ms, idle=True)
    assert bench.told == []
