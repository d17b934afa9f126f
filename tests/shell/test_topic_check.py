"""Which topics a consumer's user is told of: those that are missing, once, until they have been there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.shell.topic_check import TopicCheck
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import Kind, Node, Stat

FOUND = Stat(0, 1, 0)


class Bench:
    """A check of two topics, over as many sessions as a test has."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.check = TopicCheck("g", ["clicks", "views"], self._event)

    def _event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.told.append((name, fields["topic"], fields["level"]))

    def session(self, **found: bool) -> Tracker:
        """A new session in which these topics exist, or do not."""
        tracker = Tracker()
        self.check.begin(tracker)
        nodes = [
            Node(read.path, Kind.DATA, FOUND if found[read.path.removeprefix("/brokers/topics/")] else None)
            for read in tracker.take(1)
        ]
        for node in tracker.answered(1, nodes):
            self.check.take(node, tracker)
        return tracker


def test_what_is_missing_is_told_once_however_often_the_session_is_another() -> None:
    bench = Bench()
    bench.session(clicks=True, views=False)
    bench.session(clicks=True, views=False)
    assert bench.told == [("topic_missing", "views", "warning")]


def test_what_was_there_and_is_missing_again_is_told_again() -> None:
    bench = Bench()
    for there in (False, True, False):
        bench.session(clicks=True, views=there)
    assert bench.told == [("topic_missing", "views", "warning")] * 2


def test_nothing_is_read_again_and_what_else_is_read_says_nothing() -> None:
    bench = Bench()
    tracker = bench.session(clicks=True, views=True)
    bench.check.take(Node("/zkcoord/schema", Kind.DATA, None), tracker)
    tracker.touch_all()
    assert (tracker.take(2), bench.told) == ([], [])
