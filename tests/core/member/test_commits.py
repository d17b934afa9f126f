"""How a member commits. Each test gives it views, and compares all its decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import FIRST, ME, T0, T1, T2, Member, commit
from zkcoord.core.member.decisions import (
    AnswerRequest,
    AskStart,
    CommitOffsets,
    LetGo,
    LosePartitions,
    Rejoin,
    Report,
)
from zkcoord.core.member.status import Held
from zkcoord.core.member.view import Position
from zkcoord.core.view import Owner
from zkcoord.errors import FencedError

HELD = Held(ME, 0, 5, 3, 1)
NEXT = HELD._replace(offset=8, offset_version=4)


def committed(offsets: dict[object, int]) -> Report:
    """The report of a commit."""
    return Report(event="offsets_committed", fields={"offsets": offsets})


def foreign(partition: object, offset: int, own: int | None) -> Report:
    """The report of a stranger's write."""
    fields = {"partitions": [partition], "offset": offset, "own": own, "level": "warning"}
    return Report(event="foreign_offset", fields=fields)


def fenced(number: int, why: str) -> AnswerRequest:
    """A refused request."""
    return AnswerRequest(number=number, error=FencedError, why=why)


def committing(**fields: object) -> Member:
    """A member that has sent a commit of T0 and T1."""
    member = Member(T0, T1)
    member.asks(commit({T0: 8, T1: 9}))
    sent = CommitOffsets(held={T0: HELD, T1: HELD}, offsets={T0: 8, T1: 9})
    assert member.decides() == [sent]
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False, **fields)
    return member


def test_a_commit_is_done_once_its_offsets_are_read() -> None:
    member = committing()
    member.reads({T0: Position(8, 4), T1: Position(9, 4)})
    assert member.decides() == [committed({T0: 8, T1: 9}), AnswerRequest(number=1)]
    member.asks()
    assert member.decides() == []
    assert member.memory.held == {T0: NEXT, T1: NEXT._replace(offset=9)}


def test_a_commit_that_was_refused_is_sent_again() -> None:
    member = committing()
    assert member.decides() == [CommitOffsets(held={T0: HELD, T1: HELD}, offsets={T0: 8, T1: 9})]


def test_of_a_commit_only_what_is_not_written_yet_is_sent_again() -> None:
    member = committing()
    member.reads({T0: Position(8, 4)})
    assert member.decides() == [CommitOffsets(held={T1: HELD}, offsets={T1: 9})]
    member.reads({T1: Position(9, 4)})
    assert member.decides() == [committed({T0: 8, T1: 9}), AnswerRequest(number=1)]


@pytest.mark.parametrize("fields", [{"settled": False}, {"unread": frozenset({FIRST})}, {"ready": False}])
def test_nothing_is_concluded_of_a_commit_before_all_that_is_held_is_as_read(fields: dict[str, object]) -> None:
    member = committing()
    member.has(**fields)
    assert member.decides() == []


def test_an_own_write_that_is_read_behind_a_broken_link_is_not_foreign() -> None:
    for broken in ({"settled": False}, {"unread": frozenset({FIRST})}):
        member = committing(**broken)
        assert member.decides() == []
        member.has(settled=True)
        member.reads({T0: Position(8, 4), T1: Position(9, 4)})
        assert member.decides() == [committed({T0: 8, T1: 9}), AnswerRequest(number=1)]


def test_an_owner_that_names_this_consumer_in_another_version_is_another_grant() -> None:
    member = Member(T0, T1)
    member.reads({}, {T0: Owner(ME, 2)})
    assert member.decides() == [LosePartitions(partitions=(T0,)), LetGo(partitions=(T0,))]
    assert member.memory.readable == {T1}


def test_a_foreign_offset_fails_the_commit_becomes_the_position_and_starts_there() -> None:
    member = committing()
    member.reads({T0: Position(2, 4), T1: Position(5, 3)})
    assert member.decides() == [foreign(T0, 2, 8), LosePartitions(partitions=(T0,))]
    member.runs(T1)
    assert member.decides() == [
        AskStart(positions={T0: 2}, incarnations={T0: 0}, resumes=True),
    ]
    member.called("start", T0, number=2, resumes=True)
    assert member.decides() == [fenced(1, "taken away, or set by somebody else, meanwhile: t-0")]


def test_an_own_value_at_a_later_version_is_foreign() -> None:
    member = committing()
    member.reads({T0: Position(8, 5)})
    assert member.decides()[0] == foreign(T0, 8, 8)


def test_the_own_value_that_somebody_writes_later_is_foreign() -> None:
    member = committing()
    member.reads({T0: Position(8, 4), T1: Position(9, 4)})
    member.decides()
    member.asks()
    member.reads({T0: Position(8, 5)})
    assert member.decides()[0] == foreign(T0, 8, None)


def test_a_taken_partition_is_lost_and_let_go() -> None:
    member = committing()
    member.reads({}, {T0: Owner("", 1)})
    assert member.decides() == [LosePartitions(partitions=(T0,)), LetGo(partitions=(T0,))]
    member.runs(T1)
    assert member.decides() == [fenced(1, "taken away, or set by somebody else, meanwhile: t-0")]


def test_a_partition_moved_by_a_failed_commit_is_lost_and_restarted_there() -> None:
    member = committing()
    member.reads({T0: Position(8, 4)}, {T1: Owner("", 1)})
    assert member.decides() == [LosePartitions(partitions=(T1,)), LetGo(partitions=(T1,))]
    member.runs(T0)
    assert member.decides() == [
        fenced(1, "taken away, or set by somebody else, meanwhile: t-1"),
        LosePartitions(partitions=(T0,)),
    ]
    member.asks()
    member.runs()
    assert member.decides() == [AskStart(positions={T0: 8}, incarnations={T0: 0}, resumes=True)]


def test_a_deleted_offset_is_lost_and_only_another_registration_can_start_it() -> None:
    member = committing()
    member.reads({T0: Position(None, None)})
    assert member.decides() == [foreign(T0, -1, 8), LosePartitions(partitions=(T0,))]
    member.runs(T1)
    assert member.decides() == [Rejoin(why="somebody deleted the offsets of t-0")]


def test_an_offset_that_nobody_can_read_is_written_over() -> None:
    member = committing()
    member.reads({T0: Position(None, 4, "/offsets/t/0: not a number")})
    garbage = HELD._replace(offset_version=4)
    assert member.decides() == [CommitOffsets(held={T0: garbage, T1: HELD}, offsets={T0: 8, T1: 9})]


def test_requests_during_a_commit_go_with_the_next_commit() -> None:
    member = committing()
    member.asks(commit({T0: 8, T1: 9}), commit({T0: 10}), commit({T1: 11}))
    member.reads({T0: Position(8, 4), T1: Position(9, 4)})
    assert member.decides() == [committed({T0: 8, T1: 9}), AnswerRequest(number=1)]
    member.has(requests=member.view.requests[1:])
    nine = NEXT._replace(offset=9)
    assert member.decides() == [CommitOffsets(held={T0: NEXT, T1: nine}, offsets={T0: 10, T1: 11})]


def test_stopped_and_restarted_partitions_are_not_committed() -> None:
    member = Member(T0, T1)
    member.asks(commit({T2: 8}), commit({T0: 8}, number=0), commit({T1: 9}))
    assert member.decides() == [
        fenced(1, "not held by this consumer any more: t-2"),
        fenced(2, "decided before these were started again: t-0"),
    ]
    member.has(requests=member.view.requests[2:])
    assert member.decides() == [CommitOffsets(held={T1: HELD}, offsets={T1: 9})]


def test_resting_partitions_are_not_committed_for_a_program_without_starts() -> None:
    member = Member(T0)
    member.runs()
    member.has(leased=False)
    member.asks(commit({T0: 8}, number=0))
    assert member.decides() == [fenced(1, "not held by this consumer any more: t-0")]


def test_a_commit_of_what_is_committed_writes_nothing() -> None:
    member = Member(T0)
    member.asks(commit({T0: 5}))
    assert member.decides() == [committed({T0: 5}), AnswerRequest(number=1)]


def test_f86_a_failed_commit_loses_no_partition_that_is_being_restarted_in_place() -> None:
    member = committing(leased=False, settled=False)
    member.decides()  # all partitions are lost with the lease
    member.runs()
    member.has(leased=True, settled=True)
    member.reads({T0: Position(8, 4), T1: Position(2, 5)})  # T1: its own write, and then somebody else's
    positions = {T0: 8, T1: 2}
    assert member.decides() == [AskStart(positions=positions, incarnations={T0: 0, T1: 0}, resumes=True)]
    member.called("start", T0, T1, number=2, resumes=True)
    assert member.decides() == [fenced(1, "taken away, or set by somebody else, meanwhile: t-1")]
