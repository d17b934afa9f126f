"""Reports about missing topics: each is reported once, until it has existed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.core.view import Wildcard
from zkcoord.member.topic_check import IDLE_MS, TopicCheck
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Stat

FOUND = Stat(0, 1, 0)


class Bench:
    """A check of two topics, over several sessions."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.check = TopicCheck("g", ["clicks", "views"], None, self._event)

    def _event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.told.append((name, fields["topic"], fields["level"]))

    def session(self, **found: bool) -> Tracker:
        """A new session. `found` says for each topic whether it exists."""
        tracker = Tracker()
        self.check.begin(tracker, DRAFT)
        nodes = [
            Node(read.path, Kind.DATA, FOUND if found[read.path.removeprefix("/brokers/topics/")] else None)
            for read in tracker.take(1)
        ]
        for node in tracker.answered(1, nodes):
            self.check.take(node, tracker)
        return tracker


def test_a_missing_topic_is_told_once_over_many_sessions() -> None:
    bench = Bench()
    bench.session(clicks=True, views=False)
    bench.session(clicks=True, views=False)
    assert bench.told == [("topic_missing", "views", "warning")]


def test_a_topic_that_is_missing_again_is_told_again() -> None:
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


class WildcardBench:
    """A check of a wildcard, over several sessions."""

    def __init__(self, regex: str, *, black_list: bool = False) -> None:
        self.told: list[Mapping[str, Any]] = []
        self.check = TopicCheck("g", (), Wildcard(regex, black_list, 1), lambda name, fields: self.told.append(fields))

    def session(self, *topics: str, idle: bool = True) -> list[str]:
        """A new session of a member that holds nothing, with these topics. Returns the paths that it reads."""
        tracker = Tracker()
        self.check.begin(tracker, DRAFT)
        for now_ms in (5, IDLE_MS + 4, IDLE_MS + 5, IDLE_MS + 6):
            self.check.member(tracker, now_ms, idle=idle)
        reads = tracker.take(1)
        for node in tracker.answered(1, [Node(read.path, Kind.CHILDREN, FOUND, children=topics) for read in reads]):
            self.check.take(node, tracker)
        tracker.touch_all()
        self.check.member(tracker, 3 * IDLE_MS, idle=True)
        assert tracker.take(2) == []
        return [read.path for read in reads]


def test_a_wildcard_that_takes_no_topic_is_told_once_until_it_has_taken_one() -> None:
    bench = WildcardBench("click|views.*")
    none = ["clicks", "__consumer_offsets"]
    for topics in (none, none, ["views1"], none):
        assert bench.session(*topics) == ["/brokers/topics"]
    assert [(fields["include"], fields["level"]) for fields in bench.told] == [("click|views.*", "warning")] * 2
    assert "includes 'click|views.*', which none of the 2 topics" in bench.told[0]["why"]


def test_a_wildcard_that_excludes_every_topic_and_one_without_an_answer_are_told() -> None:
    bench = WildcardBench("c.*", black_list=True)
    bench.session("clicks", "__consumer_offsets")
    assert "excludes 'c.*', which all 2 topics" in bench.told[0]["why"]
    assert bench.told[0]["exclude"] == "c.*"
    wrong = WildcardBench("c[")
    wrong.session("clicks")
    assert "an invalid regex" in wrong.told[0]["why"]


def test_a_holder_does_not_read_the_list() -> None:
    bench = WildcardBench("clicks")
    assert bench.session(idle=False) == []
    assert bench.told == []
