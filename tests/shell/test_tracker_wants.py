"""How nodes are wanted and forgotten. When a read got no answer, nothing of the forgotten nodes may still count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.shell.test_tracker import GRANT, MADE, OWNERS, TOLD, clean_tracker, granting_tracker, node, send
from zkcoord.shell.fair_queue import PATIENCE_MS
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import Kind, Read, Want, key_of

LISTED, DATA = Read("/a", Kind.CHILDREN, True), Read("/a")


def answered(tracker: Tracker, token: int) -> list[Read]:
    """The reads of this request, which are answered at once."""
    asked = tracker.take(token)
    tracker.answered(token, [node(read.path, read.kind) for read in asked])
    return asked


def data_tracker() -> Tracker:
    """A tracker with the data of /a and /b in scope g, which are read."""
    tracker = Tracker()
    tracker.want_data(["/a", "/b"], "g")
    answered(tracker, 1)
    return tracker


def test_wants_that_are_given_together_are_those_of_one_scope_in_their_order() -> None:
    tracker = Tracker()
    tracker.want_all([Want("/b", Kind.DATA, False, False), Want("/a", Kind.CHILDREN, True, False)], "g")
    assert (answered(tracker, 1), tracker.clean("g")) == ([Read("/b"), LISTED], True)
    tracker.touch_scope("h")
    assert tracker.clean("g")
    tracker.touch_scope("g")
    assert (tracker.clean("g"), answered(tracker, 2), tracker.clean("g")) == (False, [Read("/b"), LISTED], True)


def test_a_path_touched_before_its_question_is_read_once() -> None:
    first, data, broken, unanswered = Tracker(), Tracker(), data_tracker(), Tracker()
    first.want("/a", scope="g")
    data.want_data(["/a"], "g")
    broken.touch_all()
    unanswered.want("/a", scope="g")
    unanswered.take(1)
    unanswered.unanswered(1)
    for tracker in (first, data, broken, unanswered):
        tracker.touch("/a")
        assert DATA in answered(tracker, 2)
        assert (tracker.clean("g"), tracker.take(3)) == (True, [])


def test_of_what_is_wanted_again_or_not_at_all_nothing_changes() -> None:
    tracker = clean_tracker()
    for wanted in (True, False):
        tracker.watch("/unknown", Kind.DATA, wanted)
    tracker.watch("/a", Kind.CHILDREN, True)
    tracker.read_beside("/unknown", Kind.DATA, ["/a"])
    tracker.unwant("/unknown")
    tracker.unwant_data(["/unknown"])
    tracker.unwant_scope("h")
    tracker.want_data([], "h")
    tracker.put_off(1, "/unknown", Kind.DATA, until_ms=100)
    assert tracker.written(2, ["/unknown"]) == ([], False)
    tracker.told(2, [], ["/unknown/list/0000000001", "/a/0000000001"])  # the list is not wanted by writes
    tracker.settled(2, ["/unknown"])
    assert (tracker.clean("g"), tracker.clean("h"), tracker.take(3)) == (True, True, [])
    assert (tracker.watches("/unknown"), tracker.watches("/a", Kind.CHILDREN)) == (False, True)
    assert tracker.written(4, ["/unknown", key_of("/a", Kind.CHILDREN)]) == ([key_of("/a", Kind.CHILDREN)], False)


def test_a_watch_counts_only_while_the_node_is_as_it_was_read() -> None:
    tracker = clean_tracker()
    assert tracker.watches("/a", Kind.CHILDREN)
    tracker.touch_all()
    assert not tracker.watches("/a", Kind.CHILDREN)
    tracker.take(2)
    assert not tracker.watches("/a", Kind.CHILDREN)
    tracker.answered(2, [node("/a", Kind.CHILDREN)])
    assert tracker.watches("/a", Kind.CHILDREN)


def test_an_event_makes_dirty_what_it_is_about_and_nothing_else() -> None:
    tracker = clean_tracker()
    tracker.want("/a", watch=True, scope="g")
    answered(tracker, 2)
    for kind in (Kind.DATA, Kind.CHILDREN):
        tracker.fired("/a", data=kind is Kind.DATA, children=kind is Kind.CHILDREN)
        assert answered(tracker, 3) == [Read("/a", kind, True)]


def test_a_watched_node_that_is_dirty_when_an_own_multi_is_sent_is_read_at_once() -> None:
    tracker = granting_tracker()
    tracker.touch("/g/channel/a", Kind.CHILDREN)
    send(tracker, 5)
    assert tracker.take(6) == [Read("/g/channel/a", Kind.CHILDREN, True)]


def test_a_watched_node_set_by_an_own_multi_is_read_at_its_event() -> None:
    tracker = Tracker()
    tracker.want("/o", watch=True, scope="g", by_writes=True)
    answered(tracker, 1)
    tracker.written(2, ["/o"])
    assert tracker.take(3) == []
    tracker.fired("/o", data=True, children=False)
    assert tracker.take(4) == [Read("/o", Kind.DATA, True)]


def test_a_node_made_by_an_own_multi_and_found_before_the_reply_is_answered_by_the_read() -> None:
    tracker = granting_tracker()
    send(tracker, 5)
    tracker.want(MADE[0], scope="g")
    assert tracker.take(6) == [Read(MADE[0])]
    assert tracker.told(5, TOLD, MADE) == TOLD[:2]
    assert tracker.answered(6, [node(MADE[0])]) == [node(MADE[0])]
    tracker.settled(5, GRANT.touched())
    assert (answered(tracker, 7), tracker.clean("g")) == ([Read("/g/channel/a", Kind.CHILDREN, True)], True)


def test_a_request_for_nothing_awaits_no_answer() -> None:
    tracker = clean_tracker()
    assert (tracker.take(2), tracker.oldest) == ([], None)


def forget_node(tracker: Tracker) -> None:
    tracker.unwant("/a")


def forget_data(tracker: Tracker) -> None:
    tracker.unwant_data(["/a"])


def forget_scope(tracker: Tracker) -> None:
    tracker.unwant_scope("g")
    tracker.want_data(["/b"], "g")


FORGETS = pytest.mark.parametrize("forget", [forget_node, forget_data, forget_scope])


@FORGETS
@pytest.mark.parametrize("stands", ["clean", "dirty", "reading", "dirty and reading", "put off", "changed by a write"])
def test_forgotten_paths_count_no_more_in_any_state(forget: Callable[[Tracker], None], stands: str) -> None:
    tracker = Tracker()
    tracker.want("/a", watch=True, scope="g")
    tracker.want_data(["/b"], "g")
    answered(tracker, 1)
    if stands not in ("clean", "changed by a write"):
        tracker.touch("/a")
    if "reading" in stands:
        tracker.take(2)
    if stands == "dirty and reading":
        tracker.touch("/a")
    if stands == "put off":
        tracker.put_off(1, "/a", Kind.DATA, until_ms=100)
    if stands == "changed by a write":
        tracker.written(2, ["/a"])
    forget(tracker)
    tracker.touch("/a")
    if "reading" in stands:
        assert tracker.answered(2, [node("/a")]) == []
    rest = answered(tracker, 3)
    assert (rest, tracker.clean("g"), tracker.asks, tracker.resume(100)) == (rest, True, False, None)
    assert Read("/a", Kind.DATA, True) not in rest

    tracker.want_later(["/a"], "g")  # wanted again, it begins like a new one
    tracker.fired("/a", data=True, children=False)
    tracker.settled(2, ["/a"])
    assert (tracker.clean("g"), tracker.asks, tracker.watches("/a")) == (True, False, False)
    tracker.touch("/a")
    assert (tracker.clean("g"), answered(tracker, 4), tracker.clean("g")) == (False, [DATA], True)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_node_whose_question_had_no_answer_is_told_by_the_next_own_multi(breaks: bool) -> None:
    tracker = granting_tracker()
    tracker.touch(OWNERS[0])
    tracker.take(4)
    if breaks:
        tracker.touch_all()
    else:
        tracker.unanswered(4)
    send(tracker, 5)
    assert TOLD[0] in tracker.told(5, TOLD, ())
    assert OWNERS[0] not in [read.path for read in tracker.take(6)]


def test_an_unreadable_path_is_not_asked_for_when_its_question_ends() -> None:
    tracker = data_tracker()
    tracker.touch("/a")
    tracker.take(2)
    tracker.put_off(2, "/a", Kind.DATA, until_ms=100)
    tracker.unanswered(2)  # then the link breaks
    assert (tracker.take(3), tracker.put_aside("/a"), tracker.put_aside("/b")) == ([], True, False)
    assert (tracker.resume(100), answered(tracker, 4), tracker.clean("g")) == (None, [DATA], True)


def test_a_node_that_an_earlier_question_could_not_read_waits_unless_a_later_one_is_under_way() -> None:
    clean, dirty, reading = (data_tracker() for _ in range(3))
    for tracker in (dirty, reading):
        tracker.touch("/a")
    reading.take(3)
    for tracker in (clean, dirty, reading):
        tracker.put_off(2, "/a", Kind.DATA, until_ms=100)
    for tracker in (clean, dirty):
        assert (tracker.clean("g"), tracker.take(4), tracker.put_aside("/a")) == (False, [], True)
        tracker.resume(100)
        assert (answered(tracker, 5), tracker.clean("g")) == ([DATA], True)
    assert (reading.put_aside("/a"), reading.answered(3, [node("/a")])) == (False, [node("/a")])
    assert reading.clean("g")


def test_a_patient_scope_makes_no_request_of_its_own_for_a_while() -> None:
    tracker = data_tracker()
    tracker.patient("g", patient=True)
    tracker.touch("/a")
    assert (tracker.resume(0), tracker.asks) == (PATIENCE_MS, False)
    tracker.patient("g", patient=False)
    assert (tracker.resume(0), answered(tracker, 2)) == (None, [DATA])
