"""How a member announces ranges. Each test gives it views, and compares all its decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import ME, T0, T1, T2, Member, Roomy, announce
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import (
    Announce,
    AnswerRequest,
    LetGo,
    LookUp,
    LosePartitions,
    Report,
)
from zkcoord.core.member.status import ANNOUNCED_BYTES_MAX, Held, MemberStatus
from zkcoord.core.member.view import Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner
from zkcoord.errors import FencedError, UnavailableError, UsageError

HELD = Held(ME, 0, 5, 3, 1)


def fenced(number: int, why: str) -> AnswerRequest:
    """A refused request."""
    return AnswerRequest(number=number, error=FencedError, why=why)


def announcing() -> Member:
    """A member that has sent an announcement of T0."""
    member = Member(T0, T1)
    member.asks(announce({T0: (5, 9)}))
    assert member.decides() == [Announce(status=STATUS)]
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False)
    return member


STATUS = MemberStatus(held={T0: HELD, T1: HELD}, batch={T0: Announced(5, 9, 1)})


def test_an_announcement_is_done_once_the_status_says_it() -> None:
    member = announcing()
    member.has(status=STATUS, status_version=1)
    fields = {"partitions": [T0], "level": "debug"}
    assert member.decides() == [Report(event="announced", fields=fields), AnswerRequest(number=1)]
    assert member.memory.batch == {T0: Announced(5, 9, 1)}


def test_an_announcement_that_the_status_does_not_say_is_made_again() -> None:
    member = announcing()
    assert member.decides() == [Announce(status=STATUS)]


def test_a_range_that_does_not_begin_at_the_committed_offset_is_lost_and_started_again() -> None:
    member = Member(T0)
    member.asks(announce({T0: (6, 9)}))
    assert member.decides() == [
        LosePartitions(partitions=(T0,)),
        fenced(1, "t-0 is announced from 6, its committed offset is 5"),
    ]


def test_ranges_for_which_there_is_no_room_are_not_announced() -> None:
    member = Member(T0, T1, sizes=Roomy(status=ANNOUNCED_BYTES_MAX + 1))
    member.asks(announce({T0: (5, 9)}))
    (answer,) = member.decides()
    assert isinstance(answer, AnswerRequest)
    assert answer.error is UsageError
    full = Member(T0, T1, sizes=Roomy(status=ANNOUNCED_BYTES_MAX))
    full.memory = fast_replace(full.memory, batch={T1: Announced(5, 9, 1), T2: Announced(1, 2, 1)})
    full.asks(announce({T0: (5, 9)}))
    (answer,) = full.decides()
    assert isinstance(answer, AnswerRequest)
    assert answer.error is UnavailableError
    assert "1 of partitions held here" in answer.why
    assert "1 that it left unfinished" in answer.why
    full.asks()
    assert full.decides() == [LookUp(name="announced", partitions=(T2,))]
    full.reads({T2: Position(1, 0)}, {T2: Owner("g_other-1-00000000-0", 1)})
    assert full.decides() == [LetGo(partitions=(T2,))]
    assert full.memory.batch == {T1: Announced(5, 9, 1)}


def test_a_standing_announcement_is_not_repeated_where_there_is_no_room() -> None:
    member = Member(T0, T1, sizes=Roomy(status=ANNOUNCED_BYTES_MAX))
    batch = {T0: Announced(5, 9, 1), T1: Announced(5, 9, 1)}
    member.memory = fast_replace(member.memory, batch=batch)
    member.asks(announce({T0: (5, 9)}))
    assert member.decides() == [AnswerRequest(number=1)]


def test_nothing_is_announced_before_all_that_is_held_is_as_read() -> None:
    member = Member(T0, T1)
    member.asks(announce({T0: (5, 9)}))
    member.has(unread=frozenset({"0000000000"}))  # a commit without an answer may have passed this range
    assert member.decides() == []


@pytest.mark.parametrize("waits", [{"settled": False}, {"channel_read": False}, {"writing": True}, {"ready": False}])
def test_an_announcement_waits_until_a_multi_may_be_sent(waits: dict[str, bool]) -> None:
    member = Member(T0, T1)
    member.asks(announce({T0: (5, 9)}))
    member.has(**waits)
    assert member.decides() == []
    member.has(**{name: not value for name, value in waits.items()})
    assert member.decides() == [Announce(status=STATUS)]


def test_f352_where_owners_are_claims_new_ranges_check_the_offsets_and_many_go_in_parts() -> None:
    member = Member(T0, T1, T2, sizes=Narrow())
    member.has(claims=True)
    known = {T1: Announced(5, 9, 1)}
    member.memory = fast_replace(member.memory, batch=known)
    held = dict.fromkeys((T0, T1, T2), HELD)
    member.asks(announce({T0: (5, 9), T1: (5, 9), T2: (5, 6)}))
    first = MemberStatus(held=held, batch={T0: Announced(5, 9, 1), **known})
    whole = MemberStatus(held=held, batch={**first.batch, T2: Announced(5, 6, 1)})
    for version, partition, status in ((1, T0, first), (2, T2, whole)):
        assert member.decides() == [Announce(status=status, offsets={partition: 3})]
        member.has(status=status, status_version=version)
    fields = {"partitions": [T0, T1, T2], "level": "debug"}
    assert member.decides() == [Report(event="announced", fields=fields), AnswerRequest(number=1)]


class Narrow(Roomy):
    """Room for one partition in each multi."""

    def room(self, partitions: list[TopicPartition]) -> int:
        """There is room for one."""
        return min(1, len(partitions))
