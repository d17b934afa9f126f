"""How a member keeps offsets in Kafka. Each test gives it views, and compares all its decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import FIRST, ME, NOW, T0, T1, announce, commit, other, stop
from tests.core.member.stores import CHECKPOINT_MS, HELD, PATIENCE_MS, Keeper, done, failed, reads, to_kafka
from zkcoord.core.command import Option
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.decisions import (
    Announce,
    AnswerRequest,
    AskStart,
    CommitOffsets,
    LetGo,
    LosePartitions,
    ReleasePartitions,
    Report,
    SwitchStore,
    WatchOffsets,
)
from zkcoord.core.member.view import Position
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.core.view import Owner
from zkcoord.errors import FencedError, UnavailableError, UsageError

AWAY = UnavailableError("no broker answers")


def keeper(*held: TopicPartition, level: bool = True) -> Keeper:
    """A member in the store `kafka`."""
    return Keeper(*held, store="kafka", level=level)


def committed(offsets: dict[TopicPartition, int]) -> Report:
    """The report of a commit."""
    return Report(event="offsets_committed", fields={"offsets": offsets})


def fenced(partition: TopicPartition) -> AnswerRequest:
    """The answer to a commit of a partition that does not run any more."""
    return AnswerRequest(number=1, error=FencedError, why=f"not held by this consumer any more: {partition}")


def committing(*held: TopicPartition) -> Keeper:
    """A member that has read Kafka's commit, and has sent a commit of T0."""
    member = keeper(*held)
    member.asks(commit({T0: 8}))
    assert member.decides() == [reads(T0)]
    member.kafka_answers({})
    assert member.decides() == [to_kafka({T0: 8})]
    return member


def test_a_commit_reads_kafka_first_and_is_answered_when_kafka_has_it() -> None:
    member = committing(T0, T1)
    assert member.decides() == []
    member.kafka_answers(done(T0))
    assert member.decides() == [committed({T0: 8}), AnswerRequest(number=1)]
    assert member.memory.held == {T0: HELD._replace(offset=8), T1: HELD}  # the node is unchanged
    member.asks()
    assert member.decides() == []


def test_requests_during_a_kafka_commit_go_with_the_next() -> None:
    member = committing(T0, T1)
    member.asks(commit({T0: 8}), commit({T0: 9}), commit({T1: 7}))
    assert member.decides() == []
    member.kafka_answers(done(T0))
    assert member.decides() == [committed({T0: 8}), AnswerRequest(number=1)]
    member.has(requests=member.view.requests[1:])
    assert member.decides() == [reads(T0, T1)]
    member.kafka_answers({})
    assert member.decides() == [to_kafka({T0: 9, T1: 7})]


def test_f111_a_commit_without_an_answer_is_made_in_the_nodes_and_answered_then() -> None:
    member = committing(T0)
    now_ms = NOW + 2 * PATIENCE_MS
    why = f"Kafka did not answer within {2 * PATIENCE_MS} ms"
    assert member.decides(now_ms - 1) == []
    assert member.decides(now_ms) == [failed(why, T0)]
    assert member.decides(now_ms) == [CommitOffsets(held={T0: HELD}, offsets={T0: 8})]
    member.node(T0, 8, 4, 80)
    assert member.decides(now_ms) == [committed({T0: 8}), AnswerRequest(number=1)]


@pytest.mark.parametrize("answer", ["unknown", "raised", "left out", "refused"])
def test_f111_a_commit_that_kafka_may_not_have_goes_to_its_node(answer: str) -> None:
    member = committing(T0, T1)
    if answer == "raised":
        member.kafka_answers(error=AWAY)
    else:
        missing = {} if answer == "left out" else {answer: {T0: AWAY}}
        member.kafka_answers(CommitOutcome(**missing))  # type: ignore[arg-type]
    why = "None" if answer == "left out" else "no broker answers"
    assert member.decides() == [failed(why, T0)]
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 8})]
    member.node(T0, 8, 4, 80)
    assert member.decides() == [committed({T0: 8}), AnswerRequest(number=1)]


def test_f111_of_a_commit_taken_in_part_only_the_rest_goes_to_the_nodes() -> None:
    member = keeper(T0, T1)
    member.asks(commit({T0: 8, T1: 9}))
    member.decides()
    member.kafka_answers({})
    assert member.decides() == [to_kafka({T0: 8, T1: 9})]
    member.kafka_answers(CommitOutcome(done=frozenset({T1}), refused={T0: UsageError("no right")}))
    assert member.decides() == [failed("no right", T0)]
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 8})]
    member.node(T0, 8, 4, 80)
    assert member.decides() == [committed({T0: 8, T1: 9}), AnswerRequest(number=1)]
    member.asks(commit({T1: 10}))  # a commit that Kafka takes goes to Kafka only
    assert member.decides() == [reads(T1)]


def test_f111_an_abandoned_commits_tenure_ends_before_the_partition_is_read_again() -> None:
    member = committing(T0)
    member.has(leased=False)
    assert member.decides()[0] == LosePartitions(partitions=(T0,), ignored=CallKind.RESUME)
    member.runs()
    member.has(leased=True)
    assert member.decides() == [
        AnswerRequest(number=1, error=FencedError, why="not held by this consumer any more: t-0")
    ]
    member.asks()
    assert member.decides() == []  # 8 may be committed: it must know that before it starts at 5
    member.kafka_answers(CommitOutcome(unknown={T0: AWAY}))
    assert member.decides() == [failed("no broker answers", T0)]
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 5})]
    member.has(writing=True)
    assert member.decides() == []
    member.has(writing=False)
    member.node(T0, 5, 4, 80)
    assert member.decides() == [AskStart(positions={T0: 5}, incarnations={T0: 1}, resumes=True)]


def test_an_answer_after_the_lease_moves_the_start_and_is_not_told_to_the_program() -> None:
    member = committing(T0)
    member.has(leased=False)
    member.decides()
    member.runs()
    member.kafka_answers(done(T0))
    assert AnswerRequest(number=1) not in member.decides()
    member.has(leased=True)
    assert member.decides() == [AskStart(positions={T0: 8}, incarnations={T0: 1}, resumes=True)]


def test_a_commit_does_not_wait_for_the_attempt_to_reach_kafka_again() -> None:
    member = committing(T0)
    member.kafka_answers(CommitOutcome(refused={T0: UsageError("in use")}))
    member.decides()
    member.asks()
    member.decides(NOW + 1_000)
    assert member.decides(NOW + 1_000) == []
    member.asks(commit({T0: 9}))
    assert member.decides(NOW + 1_000) == [CommitOffsets(held={T0: HELD}, offsets={T0: 9})]


def test_f110_a_tenure_that_is_an_hour_old_ends_with_a_checkpoint_of_what_is_committed() -> None:
    member = committing(T0, T1)
    member.kafka_answers(done(T0))
    member.decides()
    member.asks()
    hour_ms = NOW + CHECKPOINT_MS
    assert member.decides(hour_ms - 1) == []
    now = {T0: HELD._replace(offset=8), T1: HELD}
    assert member.decides(hour_ms) == [CommitOffsets(held=now, offsets={T0: 8, T1: 5})]
    member.reads({T0: Position(8, 4, None, 80), T1: Position(5, 4, None, 80)})
    assert member.decides(hour_ms) == [reads(T0, T1)]
    member.kafka_answers({})
    assert member.decides(hour_ms) == [to_kafka({T0: 8, T1: 5}, mzxid=80)]
    member.kafka_answers(done(T0, T1))
    assert member.decides(hour_ms) == []
    assert member.decides(hour_ms + CHECKPOINT_MS - 1) == []


def test_f110_a_busy_partition_has_its_checkpoint_too_and_it_waits_for_the_commit_under_way() -> None:
    member = keeper(T0)
    for n in range(1, 4):
        now_ms = NOW + n * CHECKPOINT_MS // 4
        member.asks(commit({T0: 5 + n}))
        assert member.decides(now_ms) == [reads(T0)]
        member.kafka_answers({})
        member.decides(now_ms)
        member.kafka_answers(done(T0))
        assert member.decides(now_ms)[1:] == [AnswerRequest(number=1)]
    hour_ms = NOW + CHECKPOINT_MS
    member.asks(commit({T0: 9}))
    assert member.decides(hour_ms - 1) == [reads(T0)]
    assert member.decides(hour_ms) == []
    member.kafka_answers({})
    member.decides(hour_ms)
    member.kafka_answers(done(T0))
    assert member.decides(hour_ms) == [CommitOffsets(held={T0: HELD._replace(offset=9)}, offsets={T0: 9})]


def test_a_release_waits_a_third_of_the_rebalance_timeout_for_a_commit() -> None:
    member = committing(T0)
    member.finds(stop(T0))
    member.decides()
    member.called("stop", T0)
    member.answers({})
    assert member.decides() == [fenced(T0)]
    member.asks()
    assert member.decides() == []
    [release] = member.decides(NOW + PATIENCE_MS)
    assert isinstance(release, ReleasePartitions)
    assert (release.held, release.offsets, release.tenured) == ({T0: HELD}, {}, True)
    member = committing(T0)
    member.finds(stop(T0))
    member.decides()
    member.called("stop", T0)
    member.answers({})
    member.decides()
    member.kafka_answers(done(T0))
    decisions = member.decides()
    assert isinstance(decisions[0], ReleasePartitions)
    assert decisions[0].held == {T0: HELD._replace(offset=8)}


def test_a_taken_partition_is_not_committed_and_a_late_answer_is_ignored() -> None:
    member = keeper(T0)
    member.asks(commit({T0: 8}))
    member.decides()
    member.reads({}, {T0: Owner("", 1)})
    assert member.decides() == [LosePartitions(partitions=(T0,)), LetGo(partitions=(T0,))]
    member.runs()
    member.kafka_answers({})
    [answer] = member.decides()
    assert isinstance(answer, AnswerRequest)
    assert answer.error is FencedError
    member = committing(T0)
    member.reads({}, {T0: Owner("", 1)})
    member.decides()
    member.runs()
    member.kafka_answers(done(T0))
    member.decides()
    assert member.memory.held == {}


def test_a_change_of_the_store_waits_for_the_commit_under_way_and_sets_what_was_acknowledged() -> None:
    member = committing(T0, T1)
    member.finds(other(Option.OFFSET_STORE, FIRST, offsets="dual", step=2))
    assert member.decides() == []
    member.kafka_answers(done(T0))
    [switch] = member.decides()
    assert isinstance(switch, SwitchStore)
    assert switch.offsets == {T0: 8, T1: 5}
    member.finds()
    member.reads({T0: Position(8, 4, None, 80), T1: Position(5, 4, None, 80)})
    changed = Report(event="offset_store_changed", fields={"store": "dual", "step": 2})
    assert member.decides() == [changed]
    assert member.decides() == [WatchOffsets(partitions=(T0, T1), watch=False)]
    assert member.decides() == [committed({T0: 8}), AnswerRequest(number=1)]
    member.asks()
    assert member.decides() == [to_kafka({T0: 8, T1: 5}, mzxid=80)]


def test_a_range_is_announced_from_what_kafka_acknowledged() -> None:
    member = committing(T0)
    member.kafka_answers(done(T0))
    member.decides()
    member.asks(announce({T0: (5, 9)}))
    assert isinstance(member.decides()[0], LosePartitions)
    member.runs(T0)
    member.asks(announce({T0: (8, 9)}))
    [announced] = member.decides()
    assert isinstance(announced, Announce)
    assert set(announced.status.batch) == {T0}
    assert announced.status.held[T0].thread == ME


def test_the_nodes_of_what_is_held_are_watched_while_commits_go_to_kafka_and_no_longer() -> None:
    member = Keeper(T0)
    member.finds(other(Option.OFFSET_STORE, FIRST, offsets="kafka", step=2))
    member.decides()
    member.finds()
    member.node(T0, 5, 4, 80)
    assert member.decides() == [Report(event="offset_store_changed", fields={"store": "kafka", "step": 2})]
    assert member.decides() == [WatchOffsets(partitions=(T0,))]
    assert member.decides() == [reads(T0)]
    member.node(T0, 2, 5, 85)  # somebody sets the node
    assert LosePartitions(partitions=(T0,)) in member.decides()
