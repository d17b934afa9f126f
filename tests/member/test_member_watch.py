"""The nodes that a member follows. A look-up reads everything again."""

from __future__ import annotations

import pytest

from zkcoord.core.member.decisions import ClaimPartitions, LookUp, ReadAgain
from zkcoord.core.member.status import Held
from zkcoord.core.member.view import NOBODY, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.member.member_watch import MemberWatch
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

PATHS = MemberPaths(layout=DRAFT, group="g", consumer_id="g_me-1-00000000")
T0 = TopicPartition("t", 0)


OWN = MemberPaths(layout=LEGACY, group="g", consumer_id="g_me-1-z0000000")


def claimed(tracker: Tracker) -> MemberWatch:
    """A member that has claimed a partition, and watches the claim."""
    watch = MemberWatch(OWN, tracker)
    watch.look_up(LookUp(name="0000000000", partitions=(T0,)))
    watch.claiming(ClaimPartitions(partitions={T0: "g_me-1-z0000000-0"}))
    answer(watch, tracker, Stat(1, 1, 0))
    assert tracker.watches(OWN.owner(T0))
    return watch


def answer(watch: MemberWatch, tracker: Tracker, stat: Stat | None) -> list[Read]:
    """Answer the open reads, and return them."""
    asked = tracker.take(1)
    texts = {OWN.owner(T0): b"g_me-1-z0000000-0", OWN.offset(T0): b"5"}
    watch.read(tracker.answered(1, [Node(read.path, Kind.DATA, stat, texts[read.path]) for read in asked]))
    return asked


def test_a_claim_that_was_released_is_not_read_again() -> None:
    watch = claimed(tracker := Tracker())
    watch.releasing([T0])
    tracker.written(2, [OWN.owner(T0), OWN.offset(T0)])
    tracker.fired(OWN.owner(T0), data=True, children=False)
    gone = [Node(OWN.owner(T0), Kind.DATA, None), Node(OWN.offset(T0), Kind.DATA, Stat(1, 1, 0), b"7")]
    watch.read(tracker.told(2, gone, ()))
    assert watch.nodes.view.owners[T0] == NOBODY
    assert watch.unread() == frozenset()
    assert tracker.take(3) == []


def test_a_claim_whose_release_was_refused_is_watched_again() -> None:
    watch = claimed(tracker := Tracker())
    watch.releasing([T0])
    tracker.written(2, [OWN.owner(T0), OWN.offset(T0)])
    tracker.settled(2, [OWN.owner(T0), OWN.offset(T0)])  # without a change
    answer(watch, tracker, Stat(1, 1, 0))
    assert answer(watch, tracker, Stat(1, 1, 0)) == [Read(OWN.owner(T0), Kind.DATA, True)]
    assert tracker.watches(OWN.owner(T0))
    tracker.fired(OWN.owner(T0), data=True, children=False)
    assert answer(watch, tracker, None) == [Read(OWN.owner(T0), Kind.DATA, True)]
    assert watch.nodes.view.owners[T0] == NOBODY


def followed() -> MemberWatch:
    """A member that has looked a partition up, and has read its nodes."""
    watch = MemberWatch(PATHS, tracker := Tracker())
    watch.look_up(LookUp(name="0000000000", partitions=(T0,)))
    asked = tracker.take(1)
    texts = {PATHS.owner(T0): b"g_me-1-00000000-0", PATHS.offset(T0): b"5"}
    answers = [Node(read.path, Kind.DATA, Stat(0, 1, 0), texts[read.path]) for read in asked]
    watch.read(tracker.answered(1, answers))
    assert watch.unread() == frozenset()
    assert watch.nodes.view.positions[T0].offset == 5
    return watch


@pytest.mark.parametrize("known", [{}, {T0: Owner("g_me-1-00000000-0", 2)}])
def test_a_new_grant_forgets_what_an_earlier_one_followed(known: dict[TopicPartition, Owner]) -> None:
    watch = followed()
    watch.look_up(LookUp(name="0000000007", partitions=(T0,), known=known))
    assert watch.unread() == {"0000000007"}
    assert watch.nodes.view.positions == {}
    assert watch.nodes.view.owners == known


def test_nodes_equal_to_the_holding_are_not_kept_and_others_are() -> None:
    watch = followed()
    mine = Held("g_me-1-00000000-0", 0, 5, 0, 1)
    watch.taken_in({})
    assert watch.nodes.view.fresh == frozenset()
    assert watch.nodes.view.owners.keys() == watch.nodes.view.positions.keys() == {T0}
    watch.taken_in({T0: mine._replace(offset=4)})
    assert watch.nodes.view.owners == {}
    assert watch.nodes.view.positions == {T0: Position(5, 0)}
    watch.taken_in({T0: mine})
    assert watch.nodes.view.positions == {}
    watch.read([Node(PATHS.offset(T0), Kind.DATA, None)])
    watch.taken_in({T0: mine})
    assert watch.nodes.view.deleted(T0)


def test_a_registration_that_was_read_to_be_gone_does_not_stand_though_its_watch_does() -> None:
    watch = MemberWatch(PATHS, tracker := Tracker())
    watch.begin()
    watch.read(tracker.answered(1, [Node(each.path, each.kind, Stat(0, 1, 0)) for each in tracker.take(1)]))
    assert watch.stands
    tracker.fired(PATHS.registration, data=True, children=False)
    assert not watch.stands
    tracker.take(2)
    watch.read(tracker.answered(2, [Node(PATHS.registration, Kind.DATA, None)]))
    assert tracker.watches(PATHS.registration)
    assert not watch.stands


def paths(reads: list[Read]) -> list[str]:
    return [read.path for read in reads]


def test_nodes_above_are_looked_up_where_nothing_below_is_held() -> None:
    watch = claimed(tracker := Tracker())
    watch.taken_in({T0: Held("g_me-1-z0000000-0", 1, 5, 1, 1)})
    t1, u0 = TopicPartition("t", 1), TopicPartition("u", 0)
    known = dict.fromkeys((t1, u0), NOBODY)
    watch.look_up(LookUp(name="0000000001", partitions=(t1, u0), known=known, parents=True))
    above = [*OWN.above_claims([u0]), *OWN.above_offsets([u0])]
    assert paths(tracker.take(2)) == above
    tracker.answered(2, [Node(path, Kind.DATA, None) for path in above])
    claim = ClaimPartitions(partitions={t1: "g_me-1-z0000000-0"})
    watch.claiming(claim)
    assert paths(tracker.take(3)) == [OWN.owner(t1), OWN.offset(t1)]
    tracker.answered(3, [Node(path, Kind.DATA, None) for path in (OWN.owner(t1), OWN.offset(t1))])
    watch.claiming(claim)
    assert {*OWN.above_claims([t1]), *OWN.above_offsets([t1])} <= {*paths(tracker.take(4))}


def test_a_refused_acknowledgement_has_unread_parents_read() -> None:
    watch = claimed(tracker := Tracker())
    watch.read_again(ReadAgain(partitions=(T0,), parents=True))
    above = {*OWN.above_claims([T0]), *OWN.above_offsets([T0])}
    assert {*paths(tracker.take(2))} == {OWN.owner(T0), OWN.offset(T0), *above}
    assert watch.unread() == {"0000000000"}
