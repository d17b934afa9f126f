"""How a member obeys starts. Each test gives it views, and compares all its decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import FIRST, ME, NOW, SECOND, T0, T1, T2, THIRD, Member, Roomy, other, start
from zkcoord.core.command import Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Application
from zkcoord.core.member.commands import NO_ROOM_MS
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    AnswerPing,
    AskReset,
    AskStart,
    LetGo,
    LookUp,
    LosePartitions,
    ReadAgain,
    RefuseCommand,
    Rejoin,
    Report,
    Versions,
)
from zkcoord.core.member.starts import STARTS_MAX, UNKNOWN_AGAIN_MS, UNKNOWN_MS
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.view import ANNOUNCED, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner, Refusal
from zkcoord.errors import UnavailableError, UnknownPartitionError


def started(offsets: dict[object, int], generation: int = 1) -> Report:
    """The report when the partitions may be read."""
    return Report(
        event="fetch_started", fields={"partitions": sorted(offsets), "offsets": offsets, "generation": generation}
    )


def looked_up(*commands: object, versions: int | None = 0) -> Member:
    """A member that obeys a start of T0 and T1, and still reads their nodes."""
    member = Member()
    member.finds(start(T0, T1, versions=versions))
    known = {} if versions is None else {T0: Owner(ME, versions), T1: Owner(ME, versions)}
    assert member.decides() == [LookUp(name=FIRST, partitions=(T0, T1), known=known, parents=True)]
    member.has(unread=frozenset({FIRST}))
    assert member.decides() == []
    if known:
        member.has(owners=known)
    return member


def told(member: Member) -> None:
    """The application is told to start both partitions at 7, and does so."""
    assert member.decides() == [AskStart(positions={T0: 7, T1: 7}, incarnations={T0: 0, T1: 0})]
    member.called("start", T0, T1, number=1)
    assert member.decides() == []
    member.answers()


def ready() -> Member:
    """A member whose application runs T0 and T1, before the acknowledgement."""
    member = looked_up()
    member.reads({T0: Position(7, 2), T1: Position(7, 2)})
    told(member)
    return member


HELD = {T0: Held(ME, 0, 7, 2, 1), T1: Held(ME, 0, 7, 2, 1)}
ACKNOWLEDGED = AcknowledgeStarts(commands={FIRST: 0}, first={}, refused={}, status=MemberStatus(held=HELD))


def test_a_start_is_looked_up_told_and_acknowledged_and_read_only_then() -> None:
    member = ready()
    assert member.decides() == [ACKNOWLEDGED]
    assert not member.memory.readable
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False)
    member.finds()  # the reply says that the command is gone
    assert member.decides() == [LetGo(partitions=(), parents=True), started({T0: 7, T1: 7})]
    assert member.memory.readable == {T0, T1}
    assert member.decides() == []


def test_a_partition_without_an_offset_starts_at_the_reset_and_writes_it() -> None:
    member = looked_up()
    member.reads({T0: Position(7, 2), T1: Position(None, None)})
    assert member.decides() == [AskReset(partitions=(T1,))]
    member.called("reset", T1)
    assert member.decides() == []
    member.answers({T1: 40})
    assert member.decides() == [AskStart(positions={T0: 7, T1: 40}, incarnations={T0: 0, T1: 0})]
    member.called("start", T0, T1, number=1)
    member.answers()
    held = {T0: Held(ME, 0, 7, 2, 1), T1: Held(ME, 0, 40, 0, 1)}
    assert member.decides() == [
        AcknowledgeStarts(
            commands={FIRST: 0}, first={T1: (40, Versions(0, None))}, refused={}, status=MemberStatus(held=held)
        )
    ]
    member.finds()
    member.reads({T1: Position(40, 0)})
    assert member.decides() == [LetGo(partitions=(), parents=True), started({T0: 7, T1: 40})]


def test_a_start_leaves_out_ungranted_partitions() -> None:
    member = looked_up(versions=None)
    member.reads({T0: Position(7, 2), T1: Position(7, 2)}, {T0: Owner(ME, 4), T1: Owner("g_other-1-00000000-0", 4)})
    assert member.decides() == [AskStart(positions={T0: 7}, incarnations={T0: 0})]
    member.called("start", T0, number=1)
    member.answers()
    status = MemberStatus(held={T0: Held(ME, 4, 7, 2, 1)})
    assert member.decides() == [AcknowledgeStarts(commands={FIRST: 0}, first={}, refused={}, status=status)]
    member.finds()
    assert member.decides() == [LetGo(partitions=(T1,), parents=True), started({T0: 7})]


def refusal(reason: str) -> Refusal:
    """The refusal of the first start."""
    return Refusal(generation=1, sequence=FIRST, reason=reason)


def test_the_acknowledgement_gives_back_partitions_that_failed_to_start() -> None:
    member = looked_up()
    member.reads({T0: Position(7, 2), T1: Position(7, 2)})
    assert member.decides() == [AskStart(positions={T0: 7, T1: 7}, incarnations={T0: 0, T1: 0})]
    member.called("start", T0, T1, number=1)
    member.answers(error=RuntimeError("disk full"))
    why = "start: RuntimeError: disk full"
    status = MemberStatus(refused={T0: refusal(why), T1: refusal(why)})
    assert member.decides() == [
        AcknowledgeStarts(commands={FIRST: 0}, first={}, refused=dict.fromkeys((T0, T1), Versions(0, 2)), status=status)
    ]
    member.finds()
    member.reads({}, {T0: Owner("", 1), T1: Owner("", 1)})
    assert member.decides() == [
        LetGo(partitions=(T0, T1), parents=True),
        Report(event="start_refused", fields={"partitions": [T0, T1], "why": why, "level": "warning"}),
    ]
    member.finds(start(T0, sequence=SECOND))
    member.decides()
    assert member.memory.refused == {T1: refusal(why)}  # T0 is tried again


def test_partitions_that_fail_for_different_reasons_are_told_apart_each_with_its_own() -> None:
    member = looked_up()
    member.reads({T0: Position(None, 2, "/offsets/t/0: not a number"), T1: Position(7, 2)})
    assert member.decides() == [AskStart(positions={T1: 7}, incarnations={T1: 0})]
    member.called("start", T1, number=1)
    member.answers(error=RuntimeError("disk full"))
    unreadable, failed = "unreadable offset: /offsets/t/0: not a number", "start: RuntimeError: disk full"
    status = MemberStatus(refused={T0: refusal(unreadable), T1: refusal(failed)})
    assert member.decides() == [
        AcknowledgeStarts(commands={FIRST: 0}, first={}, refused=dict.fromkeys((T0, T1), Versions(0, 2)), status=status)
    ]
    member.finds()
    member.reads({}, {T0: Owner("", 1), T1: Owner("", 1)})
    assert member.decides() == [
        LetGo(partitions=(T0, T1), parents=True),
        Report(event="start_refused", fields={"partitions": [T0], "why": unreadable, "level": "warning"}),
        Report(event="start_refused", fields={"partitions": [T1], "why": failed, "level": "warning"}),
    ]


def test_an_offset_that_nobody_can_read_is_refused_with_its_path_and_the_rest_starts() -> None:
    member = looked_up()
    member.reads({T0: Position(None, 2, "/offsets/t/0: not a number"), T1: Position(7, 2)})
    assert member.decides() == [AskStart(positions={T1: 7}, incarnations={T1: 0})]
    assert member.memory.start is not None
    assert member.memory.start.refused == {T0: "unreadable offset: /offsets/t/0: not a number"}


def test_a_partition_that_kafka_does_not_know_yet_is_nobodys_fault_for_a_minute() -> None:
    def refused(member: Member, now_ms: int) -> str:
        member.finds(start(T0))
        member.decides(now_ms)
        member.has(owners={T0: Owner(ME, 0)})
        member.reads({T0: Position(None, None)})
        member.decides(now_ms)
        member.called("reset", T0)
        member.answers(error=UnknownPartitionError("no t-0", [T0]))
        member.decides(now_ms)
        assert member.memory.start is not None
        why = member.memory.start.refused[T0]
        member.finds()
        member.reads({}, {T0: Owner("", 1)})
        member.decides(now_ms)
        return why

    member, reason = Member(), "reset: no t-0"
    assert refused(member, NOW) == f"broker: {reason}"
    assert refused(member, NOW + UNKNOWN_MS - 1) == f"broker: {reason}"
    assert refused(member, NOW + UNKNOWN_MS) == reason
    assert refused(member, NOW + UNKNOWN_MS + UNKNOWN_AGAIN_MS + 1) == f"broker: {reason}"


def test_a_broker_that_is_away_is_nobodys_fault() -> None:
    member = looked_up()
    member.reads({T0: Position(7, 2), T1: Position(7, 2)})
    member.decides()
    member.called("start", T0, T1, number=1)
    member.answers(error=UnavailableError("no broker"))
    member.decides()
    assert member.memory.refused[T0].reason == "broker: start: no broker"


@pytest.mark.parametrize("fields", [{"unread": frozenset({SECOND})}, {"writing": True}, {"channel_read": False}])
def test_nothing_is_acknowledged_before_all_that_is_held_is_as_read(fields: dict[str, object]) -> None:
    member = ready()
    member.has(**fields)
    assert member.decides() == []


@pytest.mark.parametrize("fields", [{"writing": True}, {"channel_read": False}])
def test_no_command_is_taken_up_while_a_write_is_under_way_or_the_channel_is_unread(fields: dict[str, object]) -> None:
    member = Member(T2)
    member.finds(start(T0))
    member.has(**fields)
    assert member.decides() == []
    assert member.memory.start is None


def test_no_command_is_taken_up_while_it_is_looked_up_what_is_left_over() -> None:
    member = Member(T2)
    member.memory = fast_replace(member.memory, batch={T1: Announced(5, 9, 1)}, cleaning=True)
    member.finds(start(T0))
    member.has(unread=frozenset({ANNOUNCED}))
    assert member.decides() == []
    assert member.memory.start is None


def test_a_refused_acknowledgement_is_made_again_from_what_was_read_then() -> None:
    member = ready()
    assert member.decides() == [ACKNOWLEDGED]
    assert member.decides() == [ReadAgain(partitions=(T0, T1), parents=True)]  # the acknowledgement was refused
    member.has(unread=frozenset({FIRST}))
    assert member.decides() == []
    member.reads({T0: Position(9, 3), T1: Position(7, 2)})
    assert member.decides() == [AskStart(positions={T0: 9}, incarnations={T0: 0})]  # somebody set the offset meanwhile
    member.called("start", T0, number=2)
    member.answers()
    held = {T0: Held(ME, 0, 9, 3, 1), T1: Held(ME, 0, 7, 2, 1)}
    assert member.decides() == [
        AcknowledgeStarts(commands={FIRST: 0}, first={}, refused={}, status=MemberStatus(held=held))
    ]


def test_an_offset_that_somebody_set_right_behind_an_unknown_acknowledgement_is_started_from() -> None:
    member = ready()
    assert member.decides() == [ACKNOWLEDGED]
    member.finds()
    member.reads({T0: Position(9, 3)})
    assert member.decides() == [
        LosePartitions(partitions=(T0,)),
        LetGo(partitions=(), parents=True),
        started({T0: 9, T1: 7}),
    ]
    member.runs(T1)
    assert member.decides() == [AskStart(positions={T0: 9}, incarnations={T0: 0}, resumes=True)]


def test_an_acknowledged_start_without_an_offset_cannot_be_read_by_this_registration() -> None:
    member = ready()
    assert member.decides() == [ACKNOWLEDGED]
    member.finds()
    member.reads({T0: Position(None, None)})
    assert member.decides() == [Rejoin(why="somebody deleted the offsets of t-0, or nobody can parse them")]


def test_the_application_loses_a_partition_taken_away_during_its_start() -> None:
    member = ready()
    assert member.decides() == [ACKNOWLEDGED]
    member.finds()
    member.reads({}, {T0: Owner("", 1)})
    assert member.decides() == [
        LosePartitions(partitions=(T0,)),
        LetGo(partitions=(T0,), parents=True),
        started({T1: 7}),
    ]


@pytest.mark.parametrize("fields", [{"leased": False}, {"application": Application(full=True)}])
def test_without_a_lease_or_while_many_calls_wait_nothing_is_told_to_start(fields: dict[str, object]) -> None:
    member = looked_up()
    member.reads({T0: Position(7, 2), T1: Position(7, 2)})
    member.has(**fields)
    assert member.decides() == []
    member.has(leased=True, application=Application())
    told(member)


def test_waiting_starts_are_obeyed_as_one_and_a_ping_between_them_at_once() -> None:
    member = Member()
    member.finds(start(T0), other(Option.PING, SECOND), start(T1, sequence=THIRD, generation=2))
    assert member.decides() == [AnswerPing(commands={SECOND: 0}, status=MemberStatus(pinged=SECOND))]
    member.finds(start(T0), start(T1, sequence=THIRD, generation=2))
    known = {T0: Owner(ME, 0), T1: Owner(ME, 0)}
    assert member.decides() == [LookUp(name=FIRST, partitions=(T0, T1), known=known, parents=True)]
    member.has(owners=known)
    member.reads({T0: Position(7, 2), T1: Position(7, 2)})
    told(member)
    (acknowledged,) = member.decides()
    assert isinstance(acknowledged, AcknowledgeStarts)
    assert acknowledged.commands == {FIRST: 0, THIRD: 0}
    member.finds()
    assert member.decides() == [LetGo(partitions=(), parents=True), started({T0: 7}), started({T1: 7}, 2)]
    assert member.memory.generation == 2


def test_no_more_starts_are_obeyed_as_one_than_one_acknowledgement_deletes() -> None:
    member, named = Member(), tuple(TopicPartition("t", number) for number in range(STARTS_MAX + 1))
    member.finds(*(start(p, sequence=f"{number:010d}") for number, p in enumerate(named)))
    (looked_up,) = member.decides()
    assert isinstance(looked_up, LookUp)
    assert looked_up.partitions == named[:STARTS_MAX]


def test_announced_ranges_come_before_the_start_and_into_the_acknowledged_status() -> None:
    member = Member()
    member.finds(start(T0, T1, replay={T0: (7, 9), T1: (3, 5)}, incarnations={"t": 4}))
    member.decides()
    member.has(owners={T0: Owner(ME, 0), T1: Owner(ME, 0)})
    member.reads({T0: Position(7, 2), T1: Position(7, 2)})
    assert member.decides() == [AskStart(positions={T0: 7, T1: 7}, incarnations={T0: 4, T1: 4}, replay={T0: (7, 9)})]
    member.called("start", T0, T1, number=1)
    member.answers()
    (acknowledged,) = member.decides()
    assert isinstance(acknowledged, AcknowledgeStarts)
    assert acknowledged.status.batch == {T0: Announced(7, 9, 1, 4)}  # a commit has passed the other range


def test_a_start_looks_up_left_over_announcements_and_forgets_past_ones() -> None:
    member = Member()
    member.memory = Member().memory.__class__(batch={T1: Announced(3, 5, 1), T2: Announced(3, 5, 1)})
    member.finds(start(T0))
    assert member.decides() == [
        LookUp(name=FIRST, partitions=(T0,), known={T0: Owner(ME, 0)}, parents=True),
        LookUp(name="announced", partitions=(T1, T2)),
    ]
    member.has(owners={T0: Owner(ME, 0)}, positions={T0: Position(7, 2)}, unread=frozenset({"announced", FIRST}))
    assert member.decides() == []
    member.has(unread=frozenset({"announced"}))
    assert member.decides() == []  # the start waits: its acknowledgement's status shows what is left over
    member.reads({T0: Position(7, 2), T1: Position(3, 1), T2: Position(4, 1)}, {T1: Owner("", 1), T2: Owner("", 1)})
    assert member.decides() == [LetGo(partitions=(T1, T2))]
    assert member.memory.batch == {T1: Announced(3, 5, 1)}


def test_a_start_ends_an_earlier_grant_of_the_same_partition() -> None:
    """Somebody had emptied the owner by hand, and the coordinator granted the partition again."""
    member = Member(T0, T1)
    member.finds(start(T0, versions=3))
    assert member.decides() == [
        LosePartitions(partitions=(T0,)),
        LookUp(name=FIRST, partitions=(T0,), known={T0: Owner(ME, 3)}, parents=True),
    ]
    member.has(owners={**member.view.owners, T0: Owner(ME, 3)})
    member.runs(T1)
    member.reads({T0: Position(5, 3)})
    assert member.decides() == [AskStart(positions={T0: 5}, incarnations={T0: 0})]
    assert member.memory.held.keys() == {T1}


def test_a_start_without_room_waits_for_some_and_is_refused_then() -> None:
    member = Member(sizes=Roomy(acknowledgement=2_000_000))
    member.finds(start(T0))
    (told,) = member.decides()
    assert isinstance(told, Report)
    assert (told.event, told.sequence) == ("start_waits", FIRST)
    assert member.decides(NOW + NO_ROOM_MS - 1) == []
    (refused,) = member.decides(NOW + NO_ROOM_MS)
    assert isinstance(refused, RefuseCommand)
    assert refused.sequence == FIRST


def test_f150_a_start_that_waits_for_room_and_is_deleted_by_somebody_is_waited_for_no_more() -> None:
    member = Member(sizes=Roomy(acknowledgement=2_000_000))
    member.finds(start(T0))
    member.decides()
    assert member.decides() == []
    assert member.wake_at_ms == NOW + NO_ROOM_MS
    member.finds()
    assert member.decides(NOW + NO_ROOM_MS) == []
    assert member.wake_at_ms is None
