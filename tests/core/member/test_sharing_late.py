"""A member in a mixed group whose application is slow with something else while old members wait for partitions."""

from __future__ import annotations

from tests.core.member.members import ME, NOW, T0, T1, T2, T3, Member, commit, other, start, stop
from tests.core.member.test_sharing import PATIENCE_MS, STOPPED_BY_MS, beside, kinds, member
from zkcoord.core.command import Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    AnswerRequest,
    AskCommits,
    AskReset,
    AskStart,
    AskStop,
    ClaimPartitions,
    CommitOffsets,
    LetGo,
    LookUp,
    LosePartitions,
    ReadStatuses,
    ReleasePartitions,
    Report,
    SwitchStore,
    Versions,
    WatchOffsets,
)
from zkcoord.core.member.log import CommitLog
from zkcoord.core.member.mirror import Exchange, Mirror, Target
from zkcoord.core.member.neighbours import ALONE, Neighbours
from zkcoord.core.member.status import Store
from zkcoord.core.member.view import NOBODY, Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner, Refusal

NOWHERE = Position(None, None)
AT = Position(7, 2)


def claimed(*partitions: TopicPartition, at: Position = AT, held: tuple[TopicPartition, ...] = ()) -> Member:
    """A member that has claimed these partitions by the plan, and is asking for what it needs to start them."""
    found = member(*held, neighbours=beside(*held, *partitions, free=partitions))
    return claims(found, partitions, at)


def claims(found: Member, partitions: tuple[TopicPartition, ...], at: Position = AT) -> Member:
    """It claims them."""
    assert kinds(found.decides())[:1] == [LookUp]
    found.reads(dict.fromkeys(partitions, at), dict.fromkeys(partitions, NOBODY))
    assert kinds(found.decides()) == [ClaimPartitions]
    found.reads(dict.fromkeys(partitions, at), dict.fromkeys(partitions, Owner(ME, 1)))
    if found.view.neighbours.planned:
        assert found.decides() == [ReadStatuses()]
    return found


def loses(found: Member, *partitions: TopicPartition, ignored: CallKind = CallKind.START) -> None:
    """It stops waiting for the application at the last moment, and not earlier."""
    assert found.decides(STOPPED_BY_MS - 1) == []
    assert found.wake_at_ms == STOPPED_BY_MS
    assert found.decides(STOPPED_BY_MS) == [LosePartitions(partitions=partitions, ignored=ignored)]
    found.has(application=found.view.application.lost(partitions, ignored))


def gives_back(found: Member, *partitions: TopicPartition, offset: int | None = 2) -> None:
    """It gives these claims back, and acknowledges none of them."""
    (sent,) = found.decides(STOPPED_BY_MS)
    assert isinstance(sent, AcknowledgeStarts)
    assert (sent.refused, sent.first) == (dict.fromkeys(partitions, Versions(1, offset)), {})
    assert sent.status.held.keys().isdisjoint(partitions)
    found.has(status=sent.status)
    found.reads(owners=dict.fromkeys(partitions, NOBODY))
    told = found.decides(STOPPED_BY_MS)
    assert LetGo(partitions=partitions, parents=True) in told
    (refused,) = [report for report in told if isinstance(report, Report)]
    assert refused.event == "start_refused"
    assert "did not start in time" in refused.fields["why"]


def test_f336_what_the_application_does_not_start_in_time_is_given_back_and_the_own_share_is_claimed_again() -> None:
    found = claimed(T0, T1)
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, T1, number=1)
    found.has(neighbours=beside(T0))  # an old member has joined, and waits for T1
    loses(found, T0, T1)
    before = found.view.application
    assert before.answered(1, None, None, part=False) is before  # its later answer does not count
    gives_back(found, T0, T1)
    found.has(neighbours=beside(T0, free=(T0,)))
    (again,) = found.decides(STOPPED_BY_MS)
    assert isinstance(again, LookUp)
    assert again.partitions == (T0,)


def test_f336_what_old_members_wait_for_is_stopped_though_a_start_of_others_hangs() -> None:
    found = claimed(T0, held=(T1,))
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, number=2)
    found.has(neighbours=beside(T0))
    loses(found, T0)
    gives_back(found, T0)
    assert found.decides(STOPPED_BY_MS) == [AskStop(partitions=(T1,))]
    found.called("stop", T1)
    assert LosePartitions(partitions=(T1,), ignored=CallKind.STOP) in found.decides(STOPPED_BY_MS)
    found.has(application=found.view.application.lost((T1,), CallKind.STOP))
    (released,) = found.decides(STOPPED_BY_MS)
    assert isinstance(released, ReleasePartitions)
    assert released.held.keys() == {T1}


def test_f336_a_first_offset_that_nobody_tells_in_time_is_not_waited_for() -> None:
    found = claimed(T0, at=NOWHERE)
    assert found.decides() == [AskReset(partitions=(T0,))]
    found.called("reset", T0)
    found.has(neighbours=beside())
    loses(found, T0)
    before = found.view.application
    assert before.answered(1, {T0: 99}, None, part=False) is before
    gives_back(found, T0, offset=None)


def test_f336_commits_that_kafka_does_not_tell_in_time_are_not_waited_for() -> None:
    def in_kafka(neighbours: Neighbours) -> Neighbours:
        return fast_replace(neighbours, store="kafka", old_store="kafka")

    found = member(neighbours=in_kafka(beside(T0, free=(T0,))))
    found.has(log=CommitLog(tree="5e0b", patience_ms=10 * PATIENCE_MS, checkpoint_ms=NOW))
    claims(found, (T0,))
    assert found.decides() == [AskCommits(partitions=(T0,), starting=1)]
    found.has(neighbours=in_kafka(beside()))
    assert found.decides(STOPPED_BY_MS - 1) == []
    gives_back(found, T0)


def test_f336_a_slow_start_of_the_own_share_is_waited_for() -> None:
    found = claimed(T0)
    found.decides()
    found.called("start", T0, number=1)
    assert found.decides(NOW + 10 * PATIENCE_MS) == []
    found.has(neighbours=ALONE)
    assert found.decides(NOW + 10 * PATIENCE_MS) == []


def test_f336_a_begun_start_of_a_command_is_refused_and_that_counts_against_nobody() -> None:
    found = member(neighbours=ALONE)
    found.finds(start(T0, versions=None))
    found.decides()
    found.reads({T0: AT}, {T0: NOBODY})
    found.decides()
    found.reads({T0: AT}, {T0: Owner(ME, 1)})
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, number=1)
    found.has(neighbours=beside())
    loses(found, T0)
    (sent,) = found.decides(STOPPED_BY_MS)
    assert isinstance(sent, AcknowledgeStarts)
    assert (sent.commands, sent.refused.keys()) == ({"0000000000": 0}, {T0})
    refusal = sent.status.refused[T0]
    assert isinstance(refusal, Refusal)
    assert refusal.taken


def test_f336_a_start_whose_acknowledgement_was_sent_is_not_given_back() -> None:
    """If it has happened, nobody sends that start again."""
    found = member(neighbours=ALONE)
    found.finds(start(T0, versions=None))
    claims(found, (T0,))
    found.called("start", T0, number=1)
    found.answers()
    (sent,) = found.decides()
    assert isinstance(sent, AcknowledgeStarts)
    found.has(neighbours=beside(), channel_read=False)
    assert found.decides(STOPPED_BY_MS) == []
    found.finds()
    found.has(channel_read=True, status=sent.status)
    found.reads({T0: Position(7, 3)})
    found.decides(STOPPED_BY_MS)
    assert found.memory.held.keys() == {T0}
    assert found.decides(STOPPED_BY_MS) == [AskStop(partitions=(T0,))]


def test_f336_what_was_refused_before_keeps_its_reason() -> None:
    found = claimed(T0, T1)
    found.reads(owners={T0: Owner("g_old-0", 0)})
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T1, number=1)
    found.has(neighbours=beside())
    loses(found, T0, T1)
    assert found.memory.start is not None
    reasons = found.memory.start.refused
    assert "g_old-0 has claimed it" in reasons[T0]
    assert "did not start in time" in reasons[T1]


def test_f336_partitions_that_are_started_again_too_slowly_are_released() -> None:
    found = member(T0, T1, neighbours=beside(T0))
    found.runs()
    found.called("start", T0, T1, number=2, resumes=True)
    loses(found, T0, T1, ignored=CallKind.RESUME)
    found.has(channel_read=False)
    assert found.decides(STOPPED_BY_MS) == []
    found.has(channel_read=True)
    (released,) = found.decides(STOPPED_BY_MS)
    assert isinstance(released, ReleasePartitions)
    assert released.held.keys() == {T1}
    found.reads(owners={T1: NOBODY})
    found.decides(STOPPED_BY_MS)
    (resumed,) = found.decides(STOPPED_BY_MS)
    assert isinstance(resumed, AskStart)
    assert (resumed.positions, resumed.resumes) == ({T0: 5}, True)


def test_f338_what_old_members_wait_for_is_stopped_though_a_commanded_stop_of_others_hangs() -> None:
    found = member(T0, T1, neighbours=ALONE)
    found.finds(stop(T0))
    assert found.decides() == [AskStop(partitions=(T0,))]
    found.called("stop", T0)
    found.has(neighbours=beside(T0))  # the plan gives T0 to this member, and T1 to an old one
    assert found.decides(STOPPED_BY_MS - 1) == []
    assert found.wake_at_ms == STOPPED_BY_MS
    late = found.decides(STOPPED_BY_MS)
    assert late[0] == LosePartitions(partitions=(T0,), ignored=CallKind.STOP)
    found.has(application=found.view.application.lost((T0,), CallKind.STOP))
    (released,) = found.decides(STOPPED_BY_MS)
    assert isinstance(released, ReleasePartitions)
    assert (released.held.keys(), released.commands) == ({T0}, {"0000000000": 0})
    found.finds()
    found.reads(owners={T0: NOBODY})
    found.decides(STOPPED_BY_MS)
    assert found.decides(STOPPED_BY_MS) == [AskStop(partitions=(T1,))]


HUNG = Exchange(targets={T0: Target(5, 0)}, since_ms=NOW, asked_ms=NOW, sent=True)


def changing_its_store(neighbours: Neighbours) -> Member:
    """A member that holds T0 and T1, and is told to change its store while a commit to Kafka has no answer."""
    found = member(T0, T1, neighbours=neighbours)
    found.has(log=CommitLog(tree="5e0b", patience_ms=10 * PATIENCE_MS, checkpoint_ms=NOW))
    found.memory = fast_replace(found.memory, store=Store("kafka", 0), mirror=Mirror(exchange=HUNG))
    assert kinds(found.decides()) == [WatchOffsets]
    found.finds(other(Option.OFFSET_STORE, offsets="dual", step=1))
    return found


def kafka_answers(found: Member, *, hangs: bool = False) -> None:
    """Kafka answers; or (`hangs`) it does not answer another commit."""
    mirror = fast_replace(found.memory.mirror, exchange=HUNG if hangs else None)
    found.memory = fast_replace(found.memory, mirror=mirror)


def test_f346_a_stop_for_old_members_does_not_wait_for_a_change_of_the_store_that_waits_for_kafka() -> None:
    found = changing_its_store(ALONE)
    assert found.decides() == []
    found.has(neighbours=beside(T0, T2, free=(T2,)))
    assert found.decides() == [AskStop(partitions=(T1,))]
    found.called("stop", T1)
    kafka_answers(found)
    assert found.decides() == []  # one thing after the other
    kafka_answers(found, hangs=True)
    found.answers({T1: 9})
    (released,) = found.decides()
    assert isinstance(released, ReleasePartitions)
    assert (released.held.keys(), released.offsets, released.commands) == ({T1}, {T1: 9}, {})
    found.reads({T1: Position(9, 4)}, {T1: NOBODY})
    found.decides()
    assert found.decides() == []  # nothing is claimed before the store is changed
    kafka_answers(found)
    (changed,) = found.decides()
    assert isinstance(changed, SwitchStore)
    assert (changed.offsets, changed.status.store) == ({T0: 5}, "dual")


def test_f351_a_program_commits_in_a_stop_for_old_members_though_a_change_of_the_store_waits_for_kafka() -> None:
    found = changing_its_store(ALONE)
    mirror = fast_replace(found.memory.mirror, failing=frozenset({T0, T1}), away=True, retry_ms=10 * NOW)
    found.memory = fast_replace(found.memory, mirror=mirror)  # Kafka is tried again
    found.decides()
    found.asks(commit({T1: 7}))
    assert found.decides() == []
    found.has(neighbours=beside(T0))
    assert found.decides() == [AskStop(partitions=(T1,))]
    found.called("stop", T1)
    (committed,) = found.decides()
    assert isinstance(committed, CommitOffsets)
    assert committed.offsets == {T1: 7}
    found.reads({T1: Position(7, 4)})
    assert AnswerRequest(number=1) in found.decides()


def test_f350_a_leave_does_not_wait_for_a_change_of_the_store_that_waits_for_kafka() -> None:
    found = changing_its_store(beside(T0, T1))
    assert found.decides() == []
    found.has(leaving=True)
    assert found.decides() == [AskStop(partitions=(T0, T1))]
    found.called("stop", T0, T1)
    found.answers({T1: 9})
    (released,) = found.decides()
    assert isinstance(released, ReleasePartitions)
    assert (released.held.keys(), released.offsets, released.commands) == ({T0, T1}, {T1: 9}, {})


def test_f350_a_leave_waits_for_a_change_of_the_store_that_is_being_written() -> None:
    found = member(T0, neighbours=beside(T0))
    found.has(log=CommitLog(tree="5e0b", patience_ms=10 * PATIENCE_MS, checkpoint_ms=NOW))
    found.memory = fast_replace(found.memory, store=Store("dual", 0), mirror=Mirror(exchange=HUNG))
    found.finds(other(Option.OFFSET_STORE, offsets="zookeeper", step=1))
    assert kinds(found.decides()) == [SwitchStore]
    found.has(leaving=True, writing=True)
    assert found.decides() == []
    found.finds()
    found.reads({T0: Position(5, 4)})
    found.has(writing=False)
    assert kinds(found.decides()) == [Report]
    assert found.decides() == [AskStop(partitions=(T0,))]
    assert found.memory.store == Store("zookeeper", 1)


def test_f340_a_claim_of_another_consumer_does_not_end_a_range_that_was_left_unfinished() -> None:
    """That consumer has the range only from its acknowledgement on, and may fail to start before."""
    left = Announced(7, 9, 4, 3)
    for position, batch in ((AT, {T3: left}), (Position(9, 3), {})):
        found = member(neighbours=beside(T0, free=(T0,)))
        found.memory = fast_replace(found.memory, batch={T3: left})
        assert kinds(found.decides()) == [LookUp, LookUp]
        found.reads({T0: AT, T3: position}, {T0: NOBODY, T3: Owner("g_other-1-00000000-0", 1)})
        assert found.decides() == [LetGo(partitions=(T3,))]
        assert found.memory.batch == batch


def test_what_is_held_is_not_put_off_any_more() -> None:
    found = claimed(T0)
    found.memory = fast_replace(found.memory, put_off={T0: NOW + 1})
    assert kinds(found.decides()) == [AskStart]
    found.called("start", T0, number=1)
    found.answers()
    (sent,) = found.decides()
    assert isinstance(sent, AcknowledgeStarts)
    found.has(status=sent.status)
    found.reads({T0: Position(7, 3)})
    found.decides()
    assert found.memory.held.keys() == {T0}
    assert found.memory.put_off == {}
