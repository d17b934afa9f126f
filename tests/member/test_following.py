"""The nodes that a member follows. A look-up reads everything again."""

from __future__ import annotations

import pytest

from zkcoord.core.member.decisions import ClaimPartitions, LookUp, ReadAgain
from zkcoord.core.member.status import Held
from zkcoord.core.member.view import NOBODY, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.member.following import Following
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.snapshot import Kind, Node, Read, Stat

PATHS = MemberPaths(layout=DRAFT, group="g", consumer_id="g_me-1-00000000")
T0 = TopicPartition("t", 0)


OWN = MemberPaths(layout=LEGACY, group="g", consumer_id="g_me-1-z0000000")


def claimed(tracker: Tracker) -> Following:
    """A member that has claimed a partition, and watches the claim."""
    following = Following(OWN, tracker)
    following.look_up(LookUp(name="0000000000", partitions=(T0,)))
    following.claiming(ClaimPartitions(partitions={T0: "g_me-1-z0000000-0"}))
    answer(following, tracker, Stat(1, 1, 0))
    assert tracker.watches(OWN.owner(T0))
    return following


def answer(following: Following, tracker: Tracker, stat: Stat | None) -> list[Read]:
    """Answer the open reads, and return them."""
    asked = tracker.take(1)
    texts = {OWN.owner(T0): b"g_me-1-z0000000-0", OWN.offset(T0): b"5"}
    following.read(tracker.answered(1, [Node(read.path, Kind.DATA, stat, texts[read.path]) for read in asked]))
    return asked


def test_a_claim_that_was_released_is_not_read_again() -> None:
    following = claimed(tracker := Tracker())
    following.releasing([T0])
    tracker.written(2, [OWN.owner(T0), OWN.offset(T0)])
    tracker.fired(OWN.owner(T0), data=True, children=False)
    gone = [Node(OWN.owner(T0), Kind.DATA, None), Node(OWN.offset(T0), Kind.DATA, Stat(1, 1, 0), b"7")]
    following.read(tracker.told(2, gone, ()))
    assert following.nodes.view.owners[T0] == NOBODY
    assert following.unread() == frozenset()
    assert tracker.take(3) == []


def test_a_claim_whose_release_was_refused_is_watched_again() -> None:
    following = claimed(tracker := Tracker())
    following.releasing([T0])
    tracker.written(2, [OWN.owner(T0), OWN.offset(T0)])
    tracker.settled(2, [OWN.owner(T0), OWN.offset(T0)])  # without a change
    answer(following, tracker, Stat(1, 1, 0))
    assert answer(following, tracker, Stat(1, 1, 0)) == [Read(OWN.owner(T0), Kind.DATA, True)]
    assert tracker.watches(OWN.owner(T0))
    tracker.fired(OWN.owner(T0), data=True, children=False)
    assert answer(following, tracker, None) == [Read(OWN.owner(T0), Kind.DATA, True)]
    assert following.nodes.view.owners[T0] == NOBODY


def followed() -> Following:
    """A member that has looked a partition up, and has read its nodes."""
    following = Following(PATHS, tracker := Tracker())
    following.look_up(LookUp(name="0000000000", partitions=(T0,)))
    asked = tracker.take(1)
    texts = {PATHS.owner(T0): b"g_me-1-00000000-0", PATHS.offset(T0): b"5"}
    answers = [Node(read.path, Kind.DATA, Stat(0, 1, 0), texts[read.path]) for read in asked]
    following.read(tracker.answered(1, answers))
    assert following.unread() == frozenset()
    assert following.nodes.view.positions[T0].offset == 5
    return following


@pytest.mark.parametrize("known", [{}, {T0: Owner("g_me-1-00000000-0", 2)}])
def test_what_was_followed_for_an_earlier_grant_is_read_anew_for_the_next(known: dict[TopicPartition, Owner]) -> None:
    following = followed()
    following.look_up(LookUp(name="0000000007", partitions=(T0,), known=known))
    assert following.unread() == {"0000000007"}
    assert following.nodes.view.positions == {}
    assert following.nodes.view.owners == known


def test_what_is_held_as_it_was_read_is_not_kept_twice_and_what_differs_is() -> None:
    following = followed()
    mine = Held("g_me-1-00000000-0", 0, 5, 0, 1)
    following.taken_in({})
    assert following.nodes.view.fresh == frozenset()
    assert following.nodes.view.owners.keys() == following.nodes.view.positions.keys() == {T0}
    following.taken_in({T0: mine._replace(offset=4)})
    assert following.nodes.view.owners == {}
    assert following.nodes.view.positions == {T0: Position(5, 0)}
    following.taken_in({T0: mine})
    assert following.nodes.view.positions == {}
    following.read([Node(PATHS.offset(T0), Kind.DATA, None)])
    following.taken_in({T0: mine})
    assert following.nodes.view.deleted(T0)


def test_a_registration_that_was_read_to_be_gone_does_not_stand_though_its_watch_does() -> None:
    following = Following(PATHS, tracker := Tracker())
    following.begin()
    following.read(tracker.answered(1, [Node(each.path, each.kind, Stat(0, 1, 0)) for each in tracker.take(1)]))
    assert following.stands
    tracker.fired(PATHS.registration, data=True, children=False)
    assert not following.stands
    tracker.take(2)
    following.read(tracker.answered(2, [Node(PATHS.registration, Kind.DATA, None)]))
    assert tracker.watches(PATHS.registration)
    assert not following.stands


def paths(reads: list[Read]) -> list[str]:
    return [read.path for read in reads]


def test_what_stands_above_is_looked_up_where_nothing_below_is_held_and_behind_a_refused_claim() -> None:
    following = claimed(tracker := Tracker())
    following.taken_in({T0: Held("g_me-1-z0000000-0", 1, 5, 1, 1)})
    t1, u0 = TopicPartition("t", 1), TopicPartition("u", 0)
    known = dict.fromkeys((t1, u0), NOBODY)
    following.look_up(LookUp(name="0000000001", partitions=(t1, u0), known=known, parents=True))
    above = [*OWN.above_claims([u0]), *OWN.above_offsets([u0])]
    assert paths(tracker.take(2)) == above
    tracker.answered(2, [Node(path, Kind.DATA, None) for path in above])
    claim = ClaimPartitions(partitions={t1: "g_me-1-z0000000-0"})
    following.claiming(claim)
    assert paths(tracker.take(3)) == [OWN.owner(t1), OWN.offset(t1)]
    tracker.answered(3, [Node(path, Kind.DATA, None) for path in (OWN.owner(t1), OWN.offset(t1))])
    following.claiming(claim)
    assert {*OWN.above_claims([t1]), *OWN.above_offsets([t1])} <= {*paths(tracker.take(4))}


def test_behind_a_refused_acknowledgement_what_stands_above_is_read_though_it_had_not_been_looked_up() -> None:
    following = claimed(tracker := Tracker())
    following.read_again(ReadAgain(partitions=(T0,), parents=True))
    above = {*OWN.above_claims([T0]), *OWN.above_offsets([T0])}
    assert {*paths(tracker.take(2))} == {OWN.owner(T0), OWN.offset(T0), *above}
    assert following.unread() == {"0000000000"}
