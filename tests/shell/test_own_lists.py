"""A list that only a multi of the program itself has changed is not read again: the reply tells the change."""

from __future__ import annotations

from zkcoord.shell.tracker import FEW_READS, Tracker
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.writes import CreateNode, SetNode, Transaction

STAT = Stat(0, 1, 0)
COMMAND = Transaction(writes=(CreateNode("/c", b"", sequential=True), SetNode("/s", b"1", 0)))


def listing_tracker() -> Tracker:
    """A tracker with a watched list, by writes, too, that was read and has one child."""
    tracker = Tracker()
    tracker.want("/c", Kind.CHILDREN, watch=True, scope="g", by_writes=True)
    tracker.take(1)
    tracker.answered(1, [Node("/c", Kind.CHILDREN, STAT, children=("a",))])
    return tracker


def alone(tracker: Tracker, token: int, number: int = 1) -> list[Node]:
    made = (f"/c/{number:010}",)
    lists = tracker.alone(token, ("/c", "/other"), lambda before: COMMAND.listed(before, made))
    tracker.settled(token, COMMAND.touched())
    return lists


def test_a_list_that_only_an_own_multi_has_changed_is_not_read() -> None:
    tracker = listing_tracker()
    for number in (2, 3):
        tracker.written(number, COMMAND.touched())
        tracker.fired("/c", data=False, children=True)
        assert not tracker.asks
        assert not tracker.clean("g")
        names = ("0000000002", "0000000003")[: number - 1]
        changed = STAT._replace(child_changes=number - 1)
        assert alone(tracker, number, number) == [Node("/c", Kind.CHILDREN, changed, children=(*names, "a"))]
        assert tracker.clean("g")
        assert tracker.watches("/c", Kind.CHILDREN)
    tracker.fired("/c", data=False, children=True)
    assert tracker.take(9) == [Read("/c", Kind.CHILDREN, True)]


def test_a_list_that_something_else_made_dirty_is_read_whatever_the_reply_says() -> None:
    touched, twice, broken, unread = (listing_tracker() for _ in range(4))
    for tracker in (touched, twice, broken):
        tracker.written(2, COMMAND.touched())
    touched.touch("/c", Kind.CHILDREN)
    twice.written(3, COMMAND.touched())
    broken.touch_all()
    unread.touch("/c", Kind.CHILDREN)
    unread.written(2, COMMAND.touched())
    for tracker in (touched, twice, broken, unread):
        assert alone(tracker, 2) == []
        assert tracker.take(9) == [Read("/c", Kind.CHILDREN, True)]


def test_a_list_is_read_when_the_reply_does_not_say_that_nobody_else_changed_it() -> None:
    tracker = listing_tracker()
    tracker.written(2, COMMAND.touched())
    tracker.fired("/c", data=False, children=True)
    tracker.settled(2, COMMAND.touched())
    assert tracker.take(9) == [Read("/c", Kind.CHILDREN, True)]


def test_a_list_that_an_earlier_question_could_not_read_waits_for_nothing_of_an_own_multi() -> None:
    """The list is read once more, when its waiting time is over or when somebody changes it."""
    fired, waited, told = (listing_tracker() for _ in range(3))
    for tracker in (fired, waited, told):
        tracker.written(2, COMMAND.touched())
        tracker.put_off(1, "/c", Kind.CHILDREN, until_ms=100)
    fired.fired("/c", data=False, children=True)
    waited.settled(2, COMMAND.touched())
    assert alone(told, 2) == []
    for tracker in (waited, told):
        assert (tracker.resume(99), tracker.take(8)) == (100, [])
        tracker.resume(100)
    for tracker in (fired, waited, told):
        assert tracker.take(9) == [Read("/c", Kind.CHILDREN, True)]
        assert tracker.answered(9, [Node("/c", Kind.CHILDREN, STAT)])
        assert (tracker.resume(200), tracker.take(10), tracker.clean("g")) == (None, [], True)


def test_a_few_reads_wait_for_the_answer_to_the_request_under_way_and_many_do_not() -> None:
    tracker = Tracker()
    tracker.want("/first")
    assert len(tracker.take(1)) == 1
    tracker.want("/a")
    assert not tracker.asks
    tracker.want("/b")
    tracker.answered(1, [Node("/first", Kind.DATA, STAT)])
    assert [read.path for read in tracker.take(2)] == ["/a", "/b"]
    for number in range(FEW_READS):
        tracker.want(f"/{number}")
    assert len(tracker.take(3)) == FEW_READS
