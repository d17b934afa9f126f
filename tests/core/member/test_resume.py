"""How a member starts partitions again that it holds and does not run. Each test gives it views, and compares all its
decisions."""

from __future__ import annotations

from tests.core.member.members import FIRST, ME, T0, T1, T2, Member, commit, start, stop
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.decisions import (
    AnswerRequest,
    AskStart,
    AskStop,
    LetGo,
    LookUp,
    LosePartitions,
    Rejoin,
    ReleasePartitions,
    Report,
)
from zkcoord.core.member.status import Held
from zkcoord.core.member.view import Position
from zkcoord.core.view import Owner
from zkcoord.errors import FencedError

HELD = Held(ME, 0, 5, 3, 1)


def fenced(number: int, why: str) -> AnswerRequest:
    """A refused request."""
    return AnswerRequest(number=number, error=FencedError, why=why)


def test_when_the_lease_ends_all_that_runs_is_lost_and_what_was_asked_for_it() -> None:
    member = Member(T0, T1)
    member.asks(commit({T0: 8}))
    member.has(leased=False, settled=False)
    assert member.decides() == [
        LosePartitions(partitions=(T0, T1), ignored=CallKind.RESUME),
        fenced(1, "lost by this consumer before it was committed: t-0"),
        Report(event="fetch_lost", fields={"partitions": [T0, T1], "why": "the lease ended"}),
    ]
    member.runs()
    member.asks()
    member.has(settled=True)
    assert member.decides() == []
    member.has(leased=True, unread=frozenset({FIRST}))
    assert member.decides() == []  # the partitions are read before they start again
    member.reads({T0: Position(5, 3), T1: Position(7, 4)})
    assert member.decides() == [AskStart(positions={T0: 5, T1: 7}, incarnations={T0: 0, T1: 0}, resumes=True)]


def resuming() -> Member:
    """A member whose application is starting its held partitions again."""
    member = Member(T0, T1)
    member.runs()
    offsets = {T0: 5, T1: 5}
    assert member.decides() == [AskStart(positions=offsets, incarnations={T0: 0, T1: 0}, resumes=True)]
    member.called("start", T0, T1, number=2, resumes=True)
    return member


def test_a_restarted_partition_is_read() -> None:
    member = resuming()
    assert member.decides() == []
    member.answers()
    fields = {"partitions": [T0, T1], "offsets": {T0: 5, T1: 5}, "generation": 0}
    assert member.decides() == [Report(event="fetch_started", fields=fields)]
    assert member.memory.readable == {T0, T1}


def test_nothing_is_started_again_while_too_many_calls_wait() -> None:
    member = Member(T0, T1)
    member.runs()
    member.has(application=fast_replace(member.view.application, full=True))
    assert member.decides() == []
    member.has(application=fast_replace(member.view.application, full=False))
    assert member.decides() == [AskStart(positions={T0: 5, T1: 5}, incarnations={T0: 0, T1: 0}, resumes=True)]


def test_a_failed_restart_ends_the_registration() -> None:
    member = resuming()
    member.answers(error=RuntimeError("disk full"))
    assert member.decides() == [Rejoin(why="could not start again what it holds: disk full")]


def test_no_command_is_taken_up_while_something_is_started_again() -> None:
    member = resuming()
    member.finds(stop(T0))
    assert member.decides() == []
    member.answers()
    member.decides()
    assert member.decides() == [AskStop(partitions=(T0,))]


def test_partitions_of_a_command_are_not_restarted() -> None:
    member = Member(T0, T1)
    member.finds(start(T2))
    assert isinstance(member.decides()[0], LookUp)
    member.has(unread=frozenset({FIRST}))
    member.runs(T1)
    assert member.decides() == [AskStart(positions={T0: 5}, incarnations={T0: 0}, resumes=True)]
    member.finds(stop(T0))
    member.memory = fast_replace(member.memory, start=None)
    member.has(unread=frozenset())
    member.runs(T1)
    assert [type(decision) for decision in member.decides()] == [ReleasePartitions]


def test_a_member_that_leaves_starts_nothing_again_though_it_waits_for_a_start() -> None:
    member = Member(T0, T1)
    member.finds(start(T2))
    assert isinstance(member.decides()[0], LookUp)
    member.has(unread=frozenset({FIRST}), leaving=True)
    member.runs(T1)
    assert member.decides() == []


def test_a_member_of_which_nothing_is_wanted_decides_nothing() -> None:
    member = Member(T0, T1)
    before = member.memory.counting(member.view)
    member.memory = before
    assert member.decides() == []
    assert member.memory is before  # an idle step costs nothing, however much is held


def test_a_foreign_offset_during_a_restart_loses_the_partitions() -> None:
    member = resuming()
    member.reads({T0: Position(2, 4)})
    fields = {"partitions": [T0], "offset": 2, "own": None, "level": "warning"}
    assert member.decides() == [
        Report(event="foreign_offset", fields=fields),
        LosePartitions(partitions=(T0, T1), ignored=CallKind.RESUME),
    ]


def test_a_partition_taken_away_during_its_restart_is_lost() -> None:
    member = resuming()
    member.reads({}, {T0: Owner("", 1)})
    assert member.decides() == [
        LosePartitions(partitions=(T0, T1), ignored=CallKind.RESUME),
        LetGo(partitions=(T0,)),
    ]
