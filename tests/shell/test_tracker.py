"""Nodes are dirty, being read, or clean. This decides when a group may be decided on."""

from __future__ import annotations

from zkcoord.shell.tracker import READS_PER_REQUEST_MAX, Tracker
from zkcoord.tree.snapshot import Kind, Node, Read, Stat, key_of
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction

STAT = Stat(0, 1, 0)


def node(path: str, kind: Kind = Kind.DATA) -> Node:
    """An answer."""
    return Node(path, kind, STAT)


def clean_tracker(*, watch: bool = True) -> Tracker:
    """A tracker with one list in scope g, which is wanted and read."""
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
    tracker.written(9, [key_of("/a", Kind.CHILDREN)])
    assert not tracker.clean("g")
    assert tracker.take(2) == []
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN, True)]
    tracker.settled(9, [key_of("/a", Kind.CHILDREN)])
    tracker.answered(3, [node("/a", Kind.CHILDREN)])
    assert (tracker.clean("g"), tracker.take(4)) == (True, [])


def test_an_own_write_that_was_refused_is_read_when_its_outcome_comes() -> None:
    tracker = clean_tracker()
    tracker.written(9, [key_of("/a", Kind.CHILDREN)])
    tracker.settled(9, [key_of("/a", Kind.CHILDREN)])
    assert tracker.take(2) == [Read("/a", Kind.CHILDREN, True)]
    tracker.answered(2, [node("/a", Kind.CHILDREN)])
    tracker.fired("/a", data=False, children=True)  # somebody else changed it
    assert (tracker.clean("g"), tracker.take(3)) == (False, [Read("/a", Kind.CHILDREN, True)])


def test_f151_reads_asked_for_behind_a_refused_write_tell_why_and_earlier_ones_do_not() -> None:
    for written, answers in ((2, True), (4, False)):
        tracker = clean_tracker()
        tracker.fired("/a", data=False, children=True)
        tracker.take(3)
        tracker.refused(written, "/a")
        assert (tracker.answered(3, [node("/a", Kind.CHILDREN)]) == [node("/a", Kind.CHILDREN)]) is answers
        assert tracker.clean("g") is answers


def test_a_refused_writes_paths_are_read() -> None:
    tracker = clean_tracker(watch=False)
    tracker.refused(2, "/a")
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN)]


def test_an_own_write_without_a_watch_is_read_behind_the_write() -> None:
    tracker = clean_tracker(watch=False)
    tracker.written(9, [key_of("/a", Kind.CHILDREN)])
    assert tracker.take(2) == [Read("/a", Kind.CHILDREN)]


def test_an_answer_of_before_the_broken_link_counts_for_nothing() -> None:
    tracker = clean_tracker()
    tracker.fired("/a", data=False, children=True)
    tracker.take(2)
    tracker.touch_all()
    tracker.take(3)
    assert tracker.answered(2, [node("/a", Kind.CHILDREN)]) == []
    assert tracker.answered(3, [node("/a", Kind.CHILDREN)]) == [node("/a", Kind.CHILDREN)]
    assert tracker.clean("g")


def test_an_event_behind_a_broken_link_is_not_taken_for_that_of_an_own_write_before_it() -> None:
    tracker = clean_tracker()
    tracker.written(2, [key_of("/a", Kind.CHILDREN)])
    tracker.touch_all()
    tracker.take(3)
    tracker.fired("/a", data=False, children=True)
    assert tracker.answered(3, [node("/a", Kind.CHILDREN)]) == []
    assert tracker.take(4) == [Read("/a", Kind.CHILDREN, True)]


def test_after_a_broken_link_all_is_read_in_the_order_of_wanting() -> None:
    """Nodes that follow from a list, such as a member's last status, must not be older than the list."""
    tracker = Tracker()
    tracker.want("/a", Kind.CHILDREN, watch=True, scope="g")
    tracker.want("/a", scope="g")
    tracker.take(1)
    tracker.answered(1, [node("/a", Kind.CHILDREN), node("/a")])
    tracker.touch("/a")
    tracker.touch_all()
    assert tracker.take(2) == [Read("/a", Kind.CHILDREN, True), Read("/a")]


def test_unwanted_paths_neither_count_nor_answer() -> None:
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
    tracker.answered(1, [node(f"/{n}") for n in range(READS_PER_REQUEST_MAX)])
    assert tracker.take(2) == [Read(f"/{READS_PER_REQUEST_MAX}")]


def test_a_group_has_its_share_of_a_request_however_much_of_another_waits() -> None:
    tracker = Tracker()
    for n in range(READS_PER_REQUEST_MAX + 1):
        tracker.want(f"/crowd/{n}", scope="crowd")
    tracker.want("/g/ids", scope="g")
    tracker.want("/brokers/topics/t", scope="/brokers/topics/t")
    tracker.want("/brokers/topics/u", scope="/brokers/topics/u")
    first = [read.path for read in tracker.take(1)]
    assert (len(first), first[0]) == (READS_PER_REQUEST_MAX, "/crowd/0")
    assert first[-3:] == ["/g/ids", "/brokers/topics/t", "/brokers/topics/u"]


def test_so_many_reads_are_under_way_and_no_more_until_one_request_is_over() -> None:
    tracker = Tracker()
    for n in range(3 * READS_PER_REQUEST_MAX):
        tracker.want(f"/{n}", scope="g")
    first = tracker.take(1)
    assert (len(first), len(tracker.take(2)), tracker.take(3)) == (READS_PER_REQUEST_MAX, READS_PER_REQUEST_MAX, [])
    assert not tracker.asks
    tracker.answered(1, [node(read.path) for read in first])
    assert len(tracker.take(4)) == READS_PER_REQUEST_MAX
    assert tracker.take(5) == []
    tracker.touch_all()
    assert [read.path for read in tracker.take(6)] == [f"/{n}" for n in range(READS_PER_REQUEST_MAX)]


def test_unanswered_paths_are_asked_for_again_once() -> None:
    tracker = Tracker()
    for path in ("/a", "/b"):
        tracker.want(path, scope="g")
    tracker.take(1)
    tracker.unanswered(1)
    tracker.unanswered(1)
    assert tracker.take(2) == [Read("/a"), Read("/b")]
    assert (tracker.take(3), tracker.clean("g")) == ([], False)
    tracker.answered(2, [node("/a"), node("/b")])
    assert tracker.clean("g")


def test_nodes_beside_a_list_are_read_behind_it_when_a_stranger_changed_the_list() -> None:
    tracker = clean_tracker()
    tracker.want_data(["/a/x", "/a/y"], "g")
    tracker.take(2)
    tracker.answered(2, [node("/a/x"), node("/a/y")])
    tracker.read_beside("/a", Kind.CHILDREN, ["/a/y", "/unknown"])
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN, True), Read("/a/y")]
    tracker.answered(3, [node("/a", Kind.CHILDREN), node("/a/y")])
    tracker.written(9, [key_of("/a", Kind.CHILDREN)])  # a change of its own tells by itself what changed
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(4) == [Read("/a", Kind.CHILDREN, True)]


def test_paths_wanted_later_are_clean_and_read_only_once_dirty() -> None:
    tracker = clean_tracker()
    tracker.want_later(["/a/next"], "g")
    assert tracker.clean("g")
    assert tracker.take(2) == []
    tracker.read_beside("/a", Kind.CHILDREN, ["/a/next"])
    tracker.fired("/a", data=False, children=True)
    assert tracker.take(3) == [Read("/a", Kind.CHILDREN, True), Read("/a/next")]
    assert not tracker.clean("g")
    tracker.answered(3, [node("/a", Kind.CHILDREN), node("/a/next")])
    assert tracker.clean("g")
    tracker.touch_all()
    assert tracker.take(4) == [Read("/a", Kind.CHILDREN, True), Read("/a/next")]
    tracker.unwant_scope("g")
    assert tracker.clean("g")


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


def test_an_unreadable_node_keeps_its_scope_unclean_and_is_read_again_later_or_when_touched() -> None:
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
    tracker.answered(3, [node("/b")])
    assert tracker.resume(100) is None
    assert tracker.take(4) == [Read("/a")]
    tracker.put_off(4, "/a", Kind.DATA, until_ms=200)
    tracker.answered(4, [])
    tracker.touch("/a")
    assert tracker.take(5) == [Read("/a")]
    tracker.touch("/a")
    tracker.put_off(5, "/a", Kind.DATA, until_ms=300)  # the node changed while it was being read
    tracker.answered(5, [])
    assert tracker.take(6) == [Read("/a")]
    assert tracker.answered(6, [node("/a")]) == [node("/a")]
    assert tracker.clean("g")


GRANT = Transaction(
    writes=(
        CheckNode("/epoch", 3),
        CreateNode("/g/owners/t/0", b"a-0"),
        SetNode("/g/owners/t/1", b"a-0", 4),
        CreateNode("/g/channel/a", b"start", sequential=True),
    )
)
TOLD = [
    Node("/g/owners/t/0", Kind.DATA, Stat(0, 0, 0), b"a-0"),
    Node("/g/owners/t/1", Kind.DATA, Stat(5, 0, 0), b"a-0"),
    Node("/g/channel/a/0000000007", Kind.DATA, Stat(0, 0, 0), b"start"),
]
OWNERS = ["/g/owners/t/0", "/g/owners/t/1"]
MADE = ("/g/channel/a/0000000007",)
VERSIONS = (-1, 0, 5, 0)


def granting_tracker() -> Tracker:
    """Two owners and a channel whose nodes are told by the program's own multis. All of them are read."""
    tracker = Tracker()
    tracker.want_data(OWNERS, "g", by_writes=True)
    tracker.want("/g/channel/a", Kind.CHILDREN, watch=True, scope="g", by_writes=True)
    tracker.take(1)
    tracker.answered(1, [node(OWNERS[0]), node(OWNERS[1]), node("/g/channel/a", Kind.CHILDREN)])
    return tracker


def send(tracker: Tracker, token: int) -> bool:
    """Send a multi as the loop does."""
    _, tells = tracker.written(token, GRANT.touched())
    return tells


def test_a_committed_multi_answers_for_its_nodes_without_a_read() -> None:
    tracker = granting_tracker()
    assert send(tracker, 5)
    assert not tracker.clean("g")
    assert tracker.take(6) == []
    assert GRANT.told(VERSIONS, MADE) == TOLD
    assert tracker.told(5, TOLD, MADE) == TOLD
    tracker.settled(5, GRANT.touched())
    assert tracker.take(7) == [Read("/g/channel/a", Kind.CHILDREN, True)]  # its watch did not fire, so it is read, too
    tracker.answered(7, [node("/g/channel/a", Kind.CHILDREN)])
    assert tracker.clean("g")
    tracker.touch(MADE[0])
    assert tracker.take(8) == [Read(MADE[0])]


def test_paths_touched_since_an_own_multi_are_read_behind_its_reply() -> None:
    tracker = granting_tracker()
    send(tracker, 5)
    tracker.touch(OWNERS[1])
    assert tracker.told(5, TOLD, MADE) == [TOLD[0], TOLD[2]]
    assert tracker.take(7) == [Read(OWNERS[1])]


def test_a_refused_multi_answers_for_nothing() -> None:
    tracker = granting_tracker()
    send(tracker, 5)
    tracker.settled(5, GRANT.touched())
    assert tracker.take(7) == [Read(OWNERS[0]), Read(OWNERS[1]), Read("/g/channel/a", Kind.CHILDREN, True)]
    tracker.touch(MADE[0])
    assert tracker.take(8) == []


def test_a_node_under_read_when_an_own_multi_is_sent_is_read_again_whatever_the_reply() -> None:
    tracker = granting_tracker()
    tracker.touch(OWNERS[0])
    tracker.take(4)
    send(tracker, 5)
    assert tracker.told(5, TOLD, MADE) == TOLD[1:]
    assert tracker.answered(4, [node(OWNERS[0])]) == []
    assert tracker.take(7) == [Read(OWNERS[0])]


def test_of_two_own_multis_the_reply_to_the_first_does_not_answer_for_the_second() -> None:
    tracker = granting_tracker()
    send(tracker, 5)
    send(tracker, 6)
    assert tracker.told(5, TOLD, MADE) == TOLD[2:]
    tracker.settled(5, GRANT.touched())
    assert [read.path for read in tracker.take(7)][:2] == OWNERS


def test_the_reply_of_a_connection_that_broke_answers_for_nothing() -> None:
    tracker = granting_tracker()
    send(tracker, 5)
    tracker.touch_all()
    assert tracker.told(5, TOLD, ()) == []


def test_nodes_that_a_multi_makes_and_deletes_are_gone() -> None:
    gone = Transaction(
        writes=(CreateNode("/a", b"1"), SetNode("/b", b"2", 0), SetNode("/b", b"3", 1), DeleteNode("/a", 0))
    )
    told = [Node("/a", Kind.DATA, None), Node("/b", Kind.DATA, Stat(2, 0, 0), b"3")]
    assert gone.told((0, 1, 2, -1), ()) == told


def test_a_watch_that_is_not_wanted_any_more_leaves_the_answer_to_the_reply() -> None:
    tracker = Tracker()
    tracker.want("/o", watch=True, scope="g", by_writes=True)
    tracker.answered(1, [Node(read.path, read.kind, STAT) for read in tracker.take(1)])
    tracker.watch("/o", Kind.DATA, False)
    tracker.written(2, ["/o"])
    tracker.fired("/o", data=True, children=False)  # because of the program's own write
    gone = Node("/o", Kind.DATA, None)
    assert tracker.told(2, [gone], ()) == [gone]
    assert tracker.clean("g")
    tracker.watch("/o", Kind.DATA, True)
    assert tracker.take(3) == [Read("/o", Kind.DATA, True)]


def test_a_watch_that_is_not_wanted_any_more_stands_until_it_fires() -> None:
    tracker = clean_tracker()
    tracker.watch("/a", Kind.CHILDREN, False)
    assert tracker.watches("/a", Kind.CHILDREN)
    tracker.fired("/a", data=False, children=True)
    assert not tracker.watches("/a", Kind.CHILDREN)
    assert (tracker.clean("g"), tracker.take(2)) == (True, [])
