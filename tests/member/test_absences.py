"""What a member misses: that nobody is elected is told once, and once when somebody is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.member.absences import IDLE_MS, CoordinatorCheck
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

NODE = Read(DRAFT.coordinator, Kind.DATA, watch=True)


class Bench:
    """A check with a tracker, whose node stands or does not."""

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
        """What is told when it holds nothing at this time."""
        self.told.clear()
        self.check.member(self.tracker, DRAFT, now_ms, idle=idle)
        return self.told

    def stands(self, there: bool) -> None:
        """The node is read."""
        assert self.tracker.asks
        assert self.tracker.take(1) == [NODE]
        node = Node(NODE.path, Kind.DATA, Stat(0, 1, 0) if there else None)
        for fresh in self.tracker.answered(1, [node]):
            self.check.take(fresh)


def test_that_nobody_is_elected_is_told_once_and_that_somebody_is() -> None:
    bench = Bench()
    bench.idle(0)
    bench.idle(IDLE_MS - 1)
    assert not bench.tracker.asks  # it may be given something at any moment
    bench.idle(IDLE_MS)
    assert bench.idle(IDLE_MS) == []  # it has been asked, and not answered
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


def test_who_holds_something_does_not_look_and_was_given_it_by_somebody() -> None:
    bench = Bench()
    bench.idle(0)
    bench.idle(IDLE_MS)
    bench.stands(False)
    assert bench.idle(IDLE_MS) == ["no_coordinator"]
    assert bench.idle(IDLE_MS, idle=False) == ["coordinator_elected"]
    bench.tracker.touch_all()
    assert not bench.tracker.asks
    assert bench.idle(100_000, idle=False) == []


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
