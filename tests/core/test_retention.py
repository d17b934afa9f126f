"""Groups without members: deletion on request, and retention, which continues over failovers."""

from __future__ import annotations

from dataclasses import replace

from tests.core.groups import NOW, Steps, altered, channel, decided, group, member, runs, settled, state_set
from zkcoord.core.decisions import PurgeChannel, RemoveGroup, StateEvent, WriteResponse
from zkcoord.core.memory import Memory
from zkcoord.core.model import Phase
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.phase import phase_reason, planned_phase
from zkcoord.core.record import Request, Response
from zkcoord.core.retention import Retention, asks_for_offsets
from zkcoord.core.target import Target
from zkcoord.core.view import GroupView

EMPTY = group([], {})
BEGUN = {"delete": Response(run="r1", state="deleting")}


def deletion(*, offsets: bool, **fields: object) -> GroupView:
    """An empty group whose deletion has begun."""
    return altered(EMPTY, requests={"delete": Request(run="r1", offsets=offsets)}, responses=BEGUN, **fields)  # type: ignore[arg-type]


def test_a_group_with_members_is_not_deleted() -> None:
    view = altered(settled(group([member("a"), member("b")], {})), requests={"delete": Request(run="r1", offsets=True)})
    reason = "it has 2 members: stop its consumers first"
    refusal = WriteResponse(request="delete", run="r1", state="refused", reason=reason, ends=True, why=reason)
    assert refusal in decided(view)


def test_a_deletion_begins_when_there_are_no_members_and_then_asks_what_is_left() -> None:
    view = altered(EMPTY, requests={"delete": Request(run="r1", offsets=True)})
    assert decided(view) == [
        WriteResponse(request="delete", run="r1", state="deleting", ends=False, why="the group has no members")
    ]
    assert not asks_for_offsets(view, Retention(), NOW)
    begun = deletion(offsets=True)
    assert decided(begun) == []
    assert asks_for_offsets(begun, Retention(), NOW)
    assert planned_phase(begun, Target(), (), ()) is Phase.DEAD
    assert phase_reason(Phase.DEAD, begun, Target(), ()) == "it is being deleted (run r1)"


def test_with_its_offsets_everything_goes() -> None:
    assert decided(replace(deletion(offsets=True), offsets=7)) == [
        RemoveGroup(why="its deletion was asked for (run r1)")
    ]


def test_without_its_offsets_only_what_people_decided_goes() -> None:
    assert decided(replace(deletion(offsets=False), offsets=7)) == [
        WriteResponse(
            request="delete", run="r1", state="done", ends=True, why="its offsets stay, and what belongs to them"
        )
    ]


def test_a_group_that_has_no_offsets_goes_whole() -> None:
    assert decided(replace(deletion(offsets=False), offsets=0)) == [
        RemoveGroup(why="its deletion was asked for (run r1)")
    ]


def test_a_member_that_joins_during_a_deletion_gets_nothing() -> None:
    view = replace(deletion(offsets=True), offsets=7, members={"a": member("a")}, channels={"a": channel("a")})
    view = replace(view, topics={"t": (0,)})
    assert decided(view) == [RemoveGroup(why="its deletion was asked for (run r1)")]
    orphan = replace(view, channels={"a": channel("a"), "z": channel("z")})
    assert PurgeChannel(consumer_id="z", why="its registration is gone") in decided(orphan)


def test_a_group_without_members_and_offsets_goes_after_its_retention_over_failovers() -> None:
    first = Steps(Memory(retention=Retention(retention_ms=7_000)))
    assert first.step(EMPTY, NOW) == ((), NOW + 1_000)
    note = state_set(EMPTY, StateEvent.GROUP_EMPTY, "without members all that time", empty_ms=1_000)
    assert decided(EMPTY, first, NOW + 1_000) == [note]
    noted = altered(EMPTY, empty_ms=1_000)
    assert first.step(noted, NOW + 1_001) == ((), NOW + 2_000)

    second = Steps(Memory(retention=Retention(retention_ms=7_000)))  # the first one's time does not count
    late = altered(EMPTY, empty_ms=6_000)
    assert second.step(late, NOW + 50_000) == ((), NOW + 51_000)
    assert not asks_for_offsets(late, second.last.retention, NOW + 50_999)
    assert decided(late, second, NOW + 51_000) == []
    assert asks_for_offsets(late, second.last.retention, NOW + 51_000)
    assert decided(replace(late, offsets=0), second, NOW + 51_001) == [
        RemoveGroup(why="no members for 7001 ms, and no offsets")
    ]


def test_a_group_with_offsets_stays_and_is_looked_at_once() -> None:
    steps = Steps(Memory(retention=Retention(retention_ms=7_000)))
    decided(EMPTY, steps)
    kept = replace(EMPTY, offsets=3)
    assert steps.step(kept, NOW + 9_000) == ((), None)
    assert not asks_for_offsets(replace(kept, offsets=None), steps.last.retention, NOW + 9_001)


def test_time_with_members_or_under_a_request_does_not_count() -> None:
    steps = Steps(Memory(retention=Retention(retention_ms=7_000)))
    held = altered(
        EMPTY, requests=runs(hold="r1"), responses={"hold": Response(run="r1", state="held")}, empty_ms=3_000
    )
    assert steps.step(held, NOW) == ((), None)
    assert decided(held, steps, NOW + 90_000) == []
    back = settled(group([member("a")], {}, empty_ms=3_000))
    assert state_set(back, StateEvent.GROUP_EMPTY, "it has members again", empty_ms=0) in decided(back, steps)


def test_the_tombstone_of_a_group_that_was_moved_stays_for_ever() -> None:
    steps = Steps(Memory(retention=Retention(retention_ms=7_000)))
    moved = Moved(state=MoveState.GONE, tree="bb", address="zk2:2181", run="r1")
    tombstone = replace(EMPTY, record=replace(EMPTY.record, moved=moved))
    assert steps.step(tombstone, NOW) == ((), None)
    assert decided(tombstone, steps, NOW + 90_000) == []


def test_a_deleted_group_is_an_ordinary_one_again_with_its_first_member() -> None:
    deleted = altered(EMPTY, offsets=7, deleted=True)
    steps = Steps(Memory(retention=Retention(retention_ms=7_000)))
    assert decided(deleted, steps) == []
    note = state_set(deleted, StateEvent.GROUP_EMPTY, "without members all that time", empty_ms=1_000)
    assert decided(deleted, steps, NOW + 1_000) == [note]
    back = settled(group([member("a")], {}, deleted=True))
    assert state_set(back, StateEvent.GROUP_EMPTY, "it has members again", deleted=False) in decided(back)
