"""How a member obeys stops, leaves, and answers pings meanwhile. Each test gives it views, and compares all its
decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import FIRST, ME, SECOND, T0, T1, T2, Member, commit, other, start, stop
from zkcoord.core.command import Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.commands import sent_away
from zkcoord.core.member.decide import GONE
from zkcoord.core.member.decisions import (
    AnswerPing,
    AnswerRequest,
    AskStop,
    CommitOffsets,
    Leave,
    LetGo,
    LookUp,
    LosePartitions,
    RefuseCommand,
    Rejoin,
    ReleasePartitions,
    Report,
)
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.view import Position
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner
from zkcoord.errors import FencedError

HELD = Held(ME, 0, 5, 3, 1)
FREE = Owner("", 1)


def stopped(offsets: dict[object, int]) -> Report:
    """The report when the partitions are released."""
    return Report(event="fetch_stopped", fields={"partitions": list(offsets), "offsets": offsets})


def stopping(*held: object) -> Member:
    """A member that holds T0, T1 and T2, and is told to stop T0 and T1."""
    member = Member(T0, T1, T2)
    member.finds(stop(T0, T1))
    assert member.decides() == [AskStop(partitions=(T0, T1))]
    member.called("stop", T0, T1)
    assert member.decides() == []
    return member


RELEASE = ReleasePartitions(
    held={T0: HELD, T1: HELD},
    offsets={T0: 8},
    commands={FIRST: 0},
    status=MemberStatus(held={T2: HELD}),
)


def test_a_stop_is_told_then_released_with_the_final_offsets_and_acknowledged() -> None:
    member = stopping()
    member.answers({T0: 8})
    assert member.decides() == [RELEASE]
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False)
    member.finds()
    member.reads({T0: Position(8, 4)}, {T0: FREE, T1: FREE})
    assert member.decides() == [stopped({T0: 8, T1: 5}), LetGo(partitions=(T0, T1))]
    assert member.decides() == []
    assert member.memory.stop is None
    assert member.memory.readable == {T2}


def test_nothing_is_released_before_the_application_has_stopped() -> None:
    member = stopping()
    for _ in range(3):
        assert member.decides() == []
    assert member.memory.readable == {T0, T1, T2}


def test_early_stopped_partitions_are_released_during_the_command() -> None:
    member = stopping()
    member.answers(((T1,), {T1: 9}), part=True)
    early = MemberStatus(held={T0: HELD, T2: HELD})
    assert member.decides() == [ReleasePartitions(held={T1: HELD}, offsets={T1: 9}, status=early)]
    member.reads({T1: Position(9, 4)}, {T1: FREE})
    assert member.decides() == [stopped({T1: 9}), LetGo(partitions=(T1,))]
    assert member.decides() == []
    member.answers({T0: 8})
    status = MemberStatus(held={T2: HELD})
    assert member.decides() == [ReleasePartitions(held={T0: HELD}, offsets={T0: 8}, commands={FIRST: 0}, status=status)]


def test_offsets_of_partitions_that_were_not_to_stop_do_not_count() -> None:
    member = Member(T0, T1, T2)
    member.runs(T0, T2)
    member.finds(stop(T0, T1))
    assert member.decides() == [AskStop(partitions=(T0,))]
    member.called("stop", T0)
    member.answers(((T1, T2), {T1: 9, T2: 9}), part=True)
    member.runs(T0, T2)
    assert member.decides() == []
    member.answers({T0: 8, T1: 9, T2: 9})
    assert member.decides() == [RELEASE]


def test_no_release_is_made_again_before_all_that_is_held_is_as_read() -> None:
    member = stopping()
    member.answers({T0: 8})
    assert member.decides() == [RELEASE]
    member.has(unread=frozenset({SECOND}))  # after a broken link
    assert member.decides() == []
    member.reads({T0: Position(5, 3)})
    assert member.decides() == [RELEASE]


@pytest.mark.parametrize("fields", [{"ready": False}, {"channel_read": False}])
def test_nothing_is_released_before_a_multi_may_be_sent(fields: dict[str, object]) -> None:
    member = stopping()
    member.answers({T0: 8})
    member.has(**fields)
    assert member.decides() == []
    member.has(**dict.fromkeys(fields, True))
    assert member.decides() == [RELEASE]


def test_an_application_that_fails_to_stop_keeps_what_was_committed() -> None:
    member = stopping()
    member.answers(error=RuntimeError("hangs"))
    fields = {"partitions": [T0, T1], "why": "RuntimeError: hangs", "level": "warning"}
    assert member.decides() == [Report(event="stop_failed", fields=fields)]
    assert member.decides() == [fast_replace(RELEASE, offsets={})]


def test_a_stop_of_unheld_partitions_is_done_at_once() -> None:
    member = Member(T0)
    member.finds(stop(T1))
    status = MemberStatus(held={T0: HELD})
    assert member.decides() == [ReleasePartitions(held={}, offsets={}, commands={FIRST: 0}, status=status)]


def test_a_release_that_was_refused_is_made_again_without_the_offset_that_somebody_set() -> None:
    member = stopping()
    member.answers({T0: 8, T1: 9})
    assert member.decides() == [fast_replace(RELEASE, offsets={T0: 8, T1: 9})]
    member.reads({T0: Position(2, 4)})  # the link broke, and then it is known that somebody else wrote
    fields = {"partitions": [T0], "offset": 2, "own": 8, "level": "warning"}
    assert member.decides() == [Report(event="foreign_offset", fields=fields)]
    moved = HELD._replace(offset=2, offset_version=4)
    assert member.decides() == [fast_replace(RELEASE, held={T0: moved, T1: HELD}, offsets={T1: 9})]


def test_an_own_final_offset_at_the_next_version_was_the_own_write() -> None:
    member = stopping()
    member.answers({T0: 8})
    assert member.decides() == [RELEASE]
    member.finds()
    member.reads({T0: Position(8, 4)}, {T0: FREE, T1: FREE})  # read after an unknown outcome
    assert member.decides() == [stopped({T0: 8, T1: 5}), LetGo(partitions=(T0, T1))]


def test_a_partition_regranted_after_an_unknown_release_is_not_released() -> None:
    member = stopping()
    member.answers({T0: 8})
    assert member.decides() == [RELEASE]
    member.finds(start(T0, T1, sequence=SECOND))  # the owner nodes were created again, and have the same version
    assert member.decides() == [stopped({T0: 8, T1: 5}), LetGo(partitions=(T0, T1))]
    known = {T0: Owner(ME, 0), T1: Owner(ME, 0)}
    assert member.decides() == [LookUp(name=SECOND, partitions=(T0, T1), known=known, parents=True)]


def test_a_stop_ends_for_partitions_of_new_owners() -> None:
    member = stopping()
    member.answers({T0: 8})
    assert member.decides() == [RELEASE]
    member.reads({}, {T0: Owner("g_other-1-00000000-0", 2)})
    assert member.decides() == [stopped({T0: 8}), LetGo(partitions=(T0,))]
    assert member.decides() == [fast_replace(RELEASE, held={T1: HELD}, offsets={})]


def test_a_commit_goes_while_the_application_is_at_the_stop_and_no_release_beside_it() -> None:
    member = stopping()
    member.asks(commit({T0: 6}))
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 6})]
    member.has(writing=True)
    member.answers({T0: 8})
    assert member.decides() == []
    member.has(writing=False)
    member.reads({T0: Position(6, 4)})
    moved = HELD._replace(offset=6, offset_version=4)
    assert member.decides() == [fast_replace(RELEASE, held={T0: moved, T1: HELD})]


def test_an_offset_that_a_commit_finds_overwritten_during_a_stop_stays() -> None:
    member = stopping()
    member.asks(commit({T0: 6}))
    member.decides()
    member.reads({T0: Position(2, 4)})
    fields = {"partitions": [T0], "offset": 2, "own": 6, "level": "warning"}
    assert member.decides() == [
        Report(event="foreign_offset", fields=fields),
        LosePartitions(partitions=(T0,)),
    ]
    member.runs(T1, T2)
    why = "taken away, or set by somebody else, meanwhile: t-0"
    assert member.decides() == [AnswerRequest(number=1, error=FencedError, why=why)]
    member.asks()
    assert member.decides() == []  # nothing is released or started again before the application has answered
    member.answers({T0: 8})
    moved = HELD._replace(offset=2, offset_version=4)
    assert member.decides() == [fast_replace(RELEASE, held={T0: moved, T1: HELD}, offsets={})]
    member.finds()
    member.reads({}, {T0: FREE, T1: FREE})
    assert member.decides() == [stopped({T0: 2, T1: 5}), LetGo(partitions=(T0, T1))]  # the node's offset


def test_a_ping_is_answered_while_the_application_is_at_a_stop() -> None:
    member = stopping()
    member.finds(stop(T0, T1), other(Option.PING, SECOND))
    member.has(said=(12, 3))
    status = MemberStatus(held=dict.fromkeys((T0, T1, T2), HELD), pinged=SECOND, said=(12, 3))
    assert member.decides() == [AnswerPing(commands={SECOND: 0}, status=status)]
    member.finds(stop(T0, T1))
    assert member.decides() == []


def test_leaving_releases_everything_but_unfinished_ranges_and_ends_the_session() -> None:
    member = Member(T0, T1)
    member.memory = fast_replace(member.memory, batch={T1: Announced(5, 9, 1)})
    member.has(leaving=True)
    assert member.decides() == [AskStop(partitions=(T0, T1))]
    member.called("stop", T0, T1)
    member.answers(((T1,), {T1: 5}), part=True)
    assert member.decides() == []  # it does not leave while the application reads on
    member.answers({T0: 8, T1: 5})
    assert member.decides() == [ReleasePartitions(held={T0: HELD}, offsets={T0: 8})]
    member.reads({T0: Position(8, 4)}, {T0: FREE})
    assert member.decides() == [stopped({T0: 8}), LetGo(partitions=(T0,))]
    assert member.decides() == [stopped({T1: 5}), LetGo(partitions=(T1,)), Report(event="left"), Leave()]


def test_leaving_commits_what_was_finished_of_an_announced_range() -> None:
    """The commit ends the range. Partitions that only the session's end frees would be processed again from the range's
    beginning."""
    member = Member(T0)
    member.memory = fast_replace(member.memory, batch={T0: Announced(5, 9, 1)})
    member.has(leaving=True)
    member.decides()
    member.called("stop", T0)
    member.answers({T0: 9})
    assert member.decides() == [ReleasePartitions(held={T0: HELD}, offsets={T0: 9})]


def test_leaving_waits_until_the_start_that_is_obeyed_is_acknowledged() -> None:
    member = Member(T0)
    member.finds(start(T1))
    member.decides()
    member.has(leaving=True, unread=frozenset({FIRST}))
    assert member.decides() == []


def test_a_reject_releases_everything_and_nothing_comes_after_it() -> None:
    member = Member(T0)
    member.finds(other(Option.REJECT, reason="offers nothing", final=True), start(T1, sequence=SECOND))
    fields = {"why": "offers nothing", "level": "warning"}
    assert member.decides() == [Report(event="rejected", fields=fields), AskStop(partitions=(T0,))]
    member.called("stop", T0)
    member.answers({})
    assert member.decides() == [ReleasePartitions(held={T0: HELD}, offsets={})]
    member.reads({}, {T0: FREE})
    assert member.decides() == [stopped({T0: 5}), LetGo(partitions=(T0,))]
    assert member.decides() == [Report(event="left"), Leave()]
    assert sent_away(member.view, member.memory) == "offers nothing"


def test_a_senseless_command_is_refused_and_refusals_stand_one_at_a_time() -> None:
    member = Member(T0)
    bad = fast_replace(stop(), command=None, error="version is 9, this program reads up to 1")
    member.finds(bad, other(Option.OFFSET_STORE, SECOND))
    assert member.decides() == [RefuseCommand(sequence=FIRST, why=bad.error)]
    member.finds(fast_replace(bad, error=""), other(Option.OFFSET_STORE, SECOND))
    member.has(refused_mark=True)
    assert member.decides() == []
    member.has(refused_mark=False)
    assert member.decides() == [RefuseCommand(sequence=SECOND, why="this consumer does not offer offset-store")]


def test_a_registration_that_is_gone_is_given_up_before_anything_else() -> None:
    for fields in ({"missing": frozenset({"/ids/me"})}, {"evicted": True}):
        member = Member(T0)
        member.finds(stop(T0))
        member.has(**fields, settled=False, channel_read=False)
        assert member.decides() == [Rejoin(why=GONE)]
