"""A member reports once that no coordinator is elected, and once that one is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.core.view import Wildcard
from zkcoord.member import topic_check
from zkcoord.member.absences import IDLE_MS, Absences, CoordinatorCheck
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

NODE = Read(DRAFT.coordinator, Kind.DATA, watch=True)


class Bench:
    """A check with a tracker; a test says whether the node exists."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.check = CoordinatorCheck("g", self._event)
        self.session()

    def _event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.told.append(name)

    def session(self) -> None:
        self.tracker = Tracker()
        self.check.begin()

    def idle(self, now_ms: int, *, idle: bool = True) -> list[str]:
        """The events when the member holds nothing (`idle`) at this time."""
        self.told.clear()
        self.check.member(self.tracker, DRAFT, now_ms, idle=idle)
        return self.told

    def stands(self, there: bool) -> None:
        """The node is read: it exists, or it does not."""
        assert self.tracker.asks
        assert self.tracker.take(1) == [NODE]
        node = Node(NODE.path, Kind.DATA, Stat(0, 1, 0) if there else None)
        for fresh in self.tracker.answered(1, [node]):
            self.check.take(fresh)


def test_that_nobody_is_elected_is_told_once_and_that_somebody_is() -> None:
    bench = Bench()
    bench.idle(0)
    bench.idle(IDLE_MS - 1)
    assert not bench.tracker.asks  # it may be granted something at any moment
    bench.idle(IDLE_MS)
    bench.check.take(Node("/another", Kind.DATA, None))
    assert bench.idle(IDLE_MS) == []  # the node was asked for, and there is no answer yet
    bench.stands(False)
    assert bench.idle(IDLE_MS) == ["no_coordinator"]
    assert bench.idle(10 * IDLE_MS) == []
    bench.tracker.touch(NODE.path)
    bench.stands(True)
    assert bench.idle(11 * IDLE_MS) == ["coordinator_elected"]
    assert bench.idle(20 * IDLE_MS) == []


def test_a_failover_is_told_only_when_nobody_comes() -> None:
    bench = Bench()
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.stands(True)
    assert bench.idle(100_000) == []
    bench.tracker.touch(NODE.path)
    bench.stands(False)
    assert bench.idle(200_000) == []
    assert bench.idle(200_000 + IDLE_MS - 1) == []
    assert bench.idle(200_000 + IDLE_MS) == ["no_coordinator"]


def test_a_holder_does_not_look_for_a_coordinator() -> None:
    bench = Bench()
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.stands(False)
    assert bench.idle(IDLE_MS) == ["no_coordinator"]
    assert bench.idle(IDLE_MS, idle=False) == ["coordinator_elected"]
    bench.tracker.touch_all()
    assert not bench.tracker.asks
    assert bench.idle(100_000, idle=False) == []
    assert [*bench.idle(200_000), *bench.idle(200_000 + IDLE_MS - 1)] == []
    assert not bench.tracker.asks
    bench.idle(200_000 + IDLE_MS)
    bench.stands(False)
    assert bench.idle(200_000 + IDLE_MS) == ["no_coordinator"]


def test_another_session_looks_again_and_tells_nothing_anew() -> None:
    bench = Bench()
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.stands(False)
    assert bench.idle(IDLE_MS) == ["no_coordinator"]
    bench.session()
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.stands(False)
    assert bench.idle(IDLE_MS) == []


class Whole:
    """All checks of a member, in a tree in which all nodes exist or none does."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked: list[str] = []
        self.checks = Absences("g", ["views"], Wildcard("c.*", False, 1), lambda name, _: self.told.append(name))

    def session(self) -> None:
        self.tracker = Tracker()
        self.checks.begin()
        self.checks.join(self.tracker, DRAFT)

    def idle_until(self, end_ms: int, *, there: bool) -> None:
        """The member holds nothing from 0 until `end_ms`. All its reads are answered."""
        for now_ms in range(0, end_ms, 1_000):
            self.checks.member(self.tracker, DRAFT, now_ms, idle=True)
            asked = self.tracker.take(1 + now_ms)
            self.asked += [read.path for read in asked]
            names = ("clicks",) if there else ()
            stat = Stat(0, 1, 0) if there else None
            nodes = [Node(read.path, read.kind, stat, children=names) for read in asked if read.path != RECORD]
            nodes += [Node(read.path, read.kind, None) for read in asked if read.path == RECORD]
            for node in self.tracker.answered(1 + now_ms, nodes):
                self.checks.take(node, self.tracker)


RECORD, LONG_MS = DRAFT.record("g"), 2 * topic_check.IDLE_MS


def test_each_session_of_a_member_that_holds_nothing_looks_for_topics_and_coordinator_anew() -> None:
    whole = Whole()
    for there in (False, True, False):
        whole.session()
        whole.idle_until(LONG_MS, there=there)
    missing = ["topic_missing", "no_coordinator", "topic_missing"]
    assert whole.told == [*missing, "coordinator_elected", *missing]


def test_no_session_looks_through_all_topics_of_a_member_that_has_read_in_it() -> None:
    whole = Whole()
    for _ in range(2):
        whole.session()
        whole.checks.member(whole.tracker, DRAFT, 0, idle=False)
    whole.idle_until(LONG_MS, there=True)
    assert whole.asked == [DRAFT.topic("views"), RECORD, DRAFT.coordinator]
