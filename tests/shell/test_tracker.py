"""What is dirty, being read, or clean: the rule that decides when a group may be decided on."""

from __future__ import annotations

from zkcoord.shell.tracker import READS_PER_REQUEST_MAX, Tracker
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

STAT = Stat(0, 1, 0)


def node(path: str, kind: Kind = Kind.DATA) -> Node:
    """An answer."""
    return Node(path, kind, STAT)


def clean_tracker(*, watch: bool = True) -> Tracker:
    """One list of scope g, wanted and read."""
    tracker = Tracker()
    tracker.want("/a", Kind.CHILDREN, watch=watch, scope="g")
    assert tracker.take(1) == [Read("/a", Kind.CHILDREN, watch)]
    assert tracker.answered(1, [node("/a", Kind.CHILDREN)]) == [node("/a", Kind.CHILDREN)]
    assert tracker.clean("g")
    return tracker


def test_a_want_is_unclean_until_it_is_answered_and_read_once() -> None:
    tracker = Tracker()
    tracker.want("/a", scope="g")
    tracker.want("/a", scope="g")
    assert not tracker.clean("g")
    assert tracker.take(7) == [Read("/a")]
    assert tracker.take(8) == []
    assert not tracker.clean("g")
    assert tracker.answered(7, [node("/a")]) == [node("/a")]
    assert tracker.clean("g")
    assert tracker.take(9) == []


def test_an_event_while_the_node_is_read_makes_it_read_again() -> None:
    tracker = clean_tracker()
    tracker.fired("/a", data=False, children=True)
    tracker.take(2)
    tracker.fired("/a", data=False, children=True)
    assert tracker.answered(2, [node("/a", Kind.CHILDREN)]) == []
    assert not tracker.clean("g")
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN, True)]


def test_an_own_write_under_a_watch_is_read_once_when_its_event_comes() -> None:
    tracker = clean_tracker()
    tracker.written([("/a", Kind.CHILDREN)])
    assert not tracker.clean("g")
    assert tracker.take(2) == []
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN, True)]
    tracker.settled([("/a", Kind.CHILDREN)])
    tracker.answered(3, [node("/a", Kind.CHILDREN)])
    assert tracker.clean("g")


def test_an_own_write_that_was_refused_is_read_when_its_outcome_comes() -> None:
    tracker = clean_tracker()
    tracker.written([("/a", Kind.CHILDREN)])
    tracker.settled([("/a", Kind.CHILDREN)])
    assert tracker.take(2) == [Read("/a", Kind.CHILDREN, True)]


def test_an_own_write_without_a_watch_is_read_behind_the_write() -> None:
    tracker = clean_tracker(watch=False)
    tracker.written([("/a", Kind.CHILDREN)])
    assert tracker.take(2) == [Read("/a", Kind.CHILDREN)]


def test_an_answer_of_before_the_broken_link_counts_for_nothing() -> None:
    tracker = clean_tracker()
    tracker.fired("/a", data=False, children=True)
    tracker.take(2)
    tracker.touch_all()
    tracker.take(3)
    assert tracker.answered(2, [node("/a", Kind.CHILDREN)]) == []
    assert tracker.answered(3, [node("/a", Kind.CHILDREN)]) == [node("/a", Kind.CHILDREN)]


def test_what_is_not_wanted_any_more_neither_counts_nor_answers() -> None:
    tracker = Tracker()
    tracker.want("/a", scope="g")
    tracker.want("/b", scope="h")
    tracker.take(1)
    tracker.unwant_scope("g")
    assert tracker.clean("g")
    assert tracker.answered(1, [node("/a"), node("/b")]) == [node("/b")]
    tracker.fired("/a", data=True, children=True)
    assert tracker.clean("g")


def test_one_request_asks_for_a_bounded_number_oldest_first() -> None:
    tracker = Tracker()
    for n in range(READS_PER_REQUEST_MAX + 1):
        tracker.want(f"/{n}", scope="g")
    assert len(tracker.take(1)) == READS_PER_REQUEST_MAX
    assert tracker.take(2) == [Read(f"/{READS_PER_REQUEST_MAX}")]


def test_what_stands_beside_a_list_is_read_behind_it_when_a_stranger_changed_the_list() -> None:
    tracker = clean_tracker()
    tracker.want_data(["/a/x", "/a/y"], "g")
    tracker.take(2)
    tracker.answered(2, [node("/a/x"), node("/a/y")])
    tracker.read_beside("/a", Kind.CHILDREN, ["/a/y", "/unknown"])
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN, True), Read("/a/y")]
    tracker.answered(3, [node("/a", Kind.CHILDREN), node("/a/y")])
    tracker.written([("/a", Kind.CHILDREN)])  # an own change says by itself what it was about
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(4) == [Read("/a", Kind.CHILDREN, True)]


def test_data_that_was_wanted_before_is_read_again() -> None:
    tracker = Tracker()
    tracker.want("/a", scope="g")
    tracker.take(1)
    tracker.answered(1, [node("/a")])
    tracker.want_data(["/a", "/b"], "h")
    assert (tracker.clean("g"), tracker.clean("h")) == (False, False)
    assert tracker.take(2) == [Read("/a"), Read("/b")]
    tracker.answered(2, [node("/a"), node("/b")])
    assert (tracker.clean("g"), tracker.clean("h")) == (True, True)


def test_what_cannot_be_read_keeps_its_scope_unclean_and_is_asked_for_later_or_when_it_is_touched() -> None:
    tracker = Tracker()
    tracker.want("/a", scope="g")
    tracker.want("/b", scope="h")
    tracker.take(1)
    tracker.answered(1, [node("/b")])
    tracker.put_off(1, "/a", Kind.DATA, until_ms=100)
    assert (tracker.clean("g"), tracker.clean("h")) == (False, True)
    assert tracker.resume(99) == 100
    assert tracker.take(2) == []
    tracker.touch_all()
    assert tracker.take(3) == [Read("/b")]
    assert tracker.resume(100) is None
    assert tracker.take(4) == [Read("/a")]
    tracker.put_off(4, "/a", Kind.DATA, until_ms=200)
    tracker.touch("/a")
    assert tracker.take(5) == [Read("/a")]
    tracker.touch("/a")
    tracker.put_off(5, "/a", Kind.DATA, until_ms=300)  # it changed while it was asked for
    assert tracker.take(6) == [Read("/a")]
    assert tracker.answered(6, [node("/a")]) == [node("/a")]
    assert tracker.clean("g")
