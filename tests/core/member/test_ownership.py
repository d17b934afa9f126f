"""How a member obeys starts where owners are claims that it makes itself. Each test gives it views, and compares all
its decisions."""

from __future__ import annotations

from tests.core.member.members import FIRST, ME, T0, T1, Member, start
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    AskStart,
    ClaimPartitions,
    LetGo,
    LookUp,
    LosePartitions,
    ReadAgain,
    Versions,
)
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.view import NOBODY, Position
from zkcoord.core.view import Owner, Refusal

MINE, OTHER = Owner(ME, 1), Owner("g_old-1-00000000-0", 0)
AT = Position(7, 2)


def looked_up() -> Member:
    """A member that obeys a start of T0 and T1. It takes them for free until a claim is refused."""
    member = Member()
    member.has(claims=True)
    member.finds(start(T0, T1, versions=None))
    assert member.decides() == [LookUp(name=FIRST, partitions=(T0, T1), known={T0: NOBODY, T1: NOBODY}, parents=True)]
    member.reads(owners={T0: NOBODY, T1: NOBODY})
    return member


def claimed() -> Member:
    """A member that has claimed both partitions, and whose application has started them."""
    member = looked_up()
    assert member.decides() == [ClaimPartitions(partitions={T0: ME, T1: ME})]
    member.reads({T0: AT, T1: AT}, {T0: MINE, T1: MINE})
    assert member.decides() == [AskStart(positions={T0: 7, T1: 7}, incarnations={T0: 0, T1: 0})]
    member.called("start", T0, T1, number=1)
    member.answers()
    return member


def held(*partitions: object) -> dict[object, Held]:
    """The state of these partitions after their start is acknowledged."""
    return {p: Held(ME, 1, 7, 2, 1) for p in partitions}


def acknowledged(member: Member) -> None:
    """Acknowledge both starts: each offset was set to the value that it already had."""
    member.decides()
    member.finds()
    member.reads({T0: Position(7, 3), T1: Position(7, 3)})
    member.decides()
    assert member.memory.held == {p: Held(ME, 1, 7, 3, 1) for p in (T0, T1)}


def test_the_application_is_told_only_of_what_is_claimed_and_each_claim_is_acknowledged() -> None:
    member = claimed()
    assert member.decides() == [
        AcknowledgeStarts(
            commands={FIRST: 0},
            first={T0: (7, Versions(1, 2)), T1: (7, Versions(1, 2))},
            refused={},
            status=MemberStatus(held=held(T0, T1)),
        )
    ]


def test_nothing_is_claimed_while_the_outcome_of_a_write_is_unknown() -> None:
    member = looked_up()
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False, settled=False)
    assert member.decides() == []
    member.has(settled=True)
    assert member.decides() == [ClaimPartitions(partitions={T0: ME, T1: ME})]


def test_f91_a_claim_of_unknown_outcome_is_read_again_and_what_stands_of_it_is_not_made_twice() -> None:
    member = looked_up()
    member.decides()
    member.reads(owners={T0: MINE, T1: NOBODY})
    assert member.decides() == [ClaimPartitions(partitions={T1: ME})]


def test_a_partition_claimed_by_another_session_is_refused_as_taken() -> None:
    member = looked_up()
    assert member.decides() == [ClaimPartitions(partitions={T0: ME, T1: ME})]
    member.reads({T0: AT, T1: AT}, {T0: NOBODY, T1: OTHER})
    assert member.decides() == [ClaimPartitions(partitions={T0: ME})]
    member.reads(owners={T0: MINE})
    assert member.decides() == [AskStart(positions={T0: 7}, incarnations={T0: 0})]
    member.called("start", T0, number=1)
    member.answers()
    why = "taken: g_old-1-00000000-0 has claimed it"
    [acknowledge] = member.decides()
    assert acknowledge == AcknowledgeStarts(
        commands={FIRST: 0},
        first={T0: (7, Versions(1, 2))},
        refused={},  # another member has the claim, so nothing is released
        status=MemberStatus(held=held(T0), refused={T1: Refusal(generation=1, reason=why, sequence=FIRST)}),
    )


def test_an_offset_is_read_behind_the_claim_and_is_where_the_application_starts() -> None:
    member = looked_up()
    member.decides()
    member.reads({T0: Position(9, 3), T1: AT}, {T0: MINE, T1: MINE})
    assert member.decides() == [AskStart(positions={T0: 9, T1: 7}, incarnations={T0: 0, T1: 0})]


def test_f91_a_claim_that_was_deleted_before_its_acknowledgement_is_made_again() -> None:
    member = claimed()
    member.decides()
    member.reads(owners={T1: NOBODY})  # the acknowledgement was refused
    assert member.decides() == [ReadAgain(partitions=(T0, T1), parents=True)]
    assert member.decides() == [ClaimPartitions(partitions={T1: ME})]


def test_f53_a_deleted_claim_is_lost_at_once_and_made_again_only_by_another_start() -> None:
    member = claimed()
    acknowledged(member)
    member.reads(owners={T0: NOBODY})
    assert member.decides() == [LosePartitions(partitions=(T0,)), LetGo(partitions=(T0,))]
    assert member.decides() == []
    assert set(member.memory.held) == {T1}
    member.finds(start(T0, sequence="0000000001", versions=None))
    member.runs(T1)
    assert member.decides() == [LookUp(name="0000000001", partitions=(T0,), known={T0: NOBODY}, parents=True)]


def test_an_acknowledgement_gives_back_claims_that_did_not_start() -> None:
    member = looked_up()
    member.decides()
    member.reads(owners={T0: MINE, T1: MINE})
    member.decides()
    member.called("start", T0, T1, number=1)
    member.answers(error=ValueError("no"))
    [acknowledge] = member.decides()
    assert isinstance(acknowledge, AcknowledgeStarts)
    assert (acknowledge.refused, acknowledge.first) == ({p: Versions(1, None) for p in (T0, T1)}, {})
