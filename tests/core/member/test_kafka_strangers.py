"""How a member in the store `kafka` handles strangers' commits there. Each test gives it views, and compares all its
decisions."""

from __future__ import annotations

import pytest

from tests.core.member.members import NOW, T0, T1, commit, stop
from tests.core.member.stores import HELD, PATIENCE_MS, WORKS, Keeper, done, failed, reads, stamped, to_kafka
from tests.core.member.test_kafka_store import AWAY, committed, committing, fenced, keeper
from zkcoord.core.member.decisions import (
    AnswerRequest,
    AskStart,
    AskStop,
    CommitOffsets,
    LosePartitions,
    ReleasePartitions,
    Report,
    WatchOffsets,
)
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.errors import FencedError, UnknownPartitionError, UsageError


def told(event: str, partition: TopicPartition, offset: int, own: int) -> Report:
    """The report of a stranger's commit."""
    fields = {"partitions": [partition], "offset": offset, "own": own, "level": "warning"}
    return Report(event=event, fields=fields)


def test_f112_a_strangers_lower_commit_restarts_the_partition_there_and_sets_its_node() -> None:
    member = keeper(T0, T1)
    member.asks(commit({T0: 8, T1: 9}))
    member.decides()
    member.kafka_answers({T0: KafkaCommit(offset=2), T1: KafkaCommit(offset=9)})
    assert member.decides() == [to_kafka({T0: 2, T1: 9})]  # committed as its own, so that it is followed only once
    member.kafka_answers(done(T0, T1))
    assert member.decides() == [told("foreign_offset", T0, 2, 8), LosePartitions(partitions=(T0,))]
    member.runs(T1)
    here = HELD._replace(offset=2)
    assert member.decides() == [CommitOffsets(held={T0: here}, offsets={T0: 2})]
    member.node(T0, 2, 4, 80)
    assert member.decides() == [AskStart(positions={T0: 2}, incarnations={T0: 1}, resumes=True)]
    member.called("start", T0, number=2, resumes=True)
    why = "taken away, or set by somebody else, meanwhile: t-0"
    decisions = member.decides()
    assert AnswerRequest(number=1, error=FencedError, why=why) in decisions
    member.asks()
    assert member.decides() == [reads(T0)]
    member.kafka_answers({})
    assert member.decides() == [to_kafka({T0: 2}, mzxid=80)]


def test_f112_a_commit_of_a_stranger_ahead_is_told_and_written_over() -> None:
    member = keeper(T0)
    member.asks(commit({T0: 8}))
    member.decides()
    member.kafka_answers({T0: KafkaCommit(offset=9_000)})
    assert member.decides() == [told("offset_overwritten", T0, 9_000, 8), to_kafka({T0: 8})]


def test_f112_a_final_offset_does_not_go_over_what_a_stranger_has_set_back() -> None:
    member = keeper(T0)
    member.asks(commit({T0: 8}))
    member.decides()
    member.finds(stop(T0))
    assert member.decides() == [AskStop(partitions=(T0,))]
    member.called("stop", T0)
    member.kafka_answers({T0: KafkaCommit(offset=2)})
    assert member.decides() == [to_kafka({T0: 2})]
    member.answers({T0: 8})
    assert member.decides() == [fenced(T0)]
    member.asks()
    assert member.decides() == []
    member.kafka_answers(done(T0))
    assert member.decides() == [told("foreign_offset", T0, 2, 8)]
    decisions = member.decides()
    release = decisions[0]
    assert isinstance(release, ReleasePartitions)
    assert (release.offsets, release.held[T0].offset, release.tenured) == ({}, 2, True)


@pytest.mark.parametrize("level", [True, False])
def test_f136_a_release_that_waits_for_kafka_no_longer_follows_what_a_stranger_set_back_of_it(level: bool) -> None:
    member = keeper(T0, T1, level=level)
    member.asks(commit({T0: 8, T1: 9}))
    member.decides()
    member.kafka_answers({T0: KafkaCommit(offset=2), T1: KafkaCommit(offset=3)})
    assert member.decides() == [to_kafka({T0: 2, T1: 3})]
    member.finds(stop(T0))
    member.decides()
    member.called("stop", T0)
    member.runs(T1)
    member.answers({T0: 8})
    assert member.decides() == [fenced(T0)]
    member.asks()
    assert member.decides(NOW + PATIENCE_MS - 1) == []
    assert member.decides(NOW + PATIENCE_MS) == [told("foreign_offset", T0, 2, 8)]
    [release] = member.decides(NOW + PATIENCE_MS)
    assert isinstance(release, ReleasePartitions)
    assert (release.offsets, release.held[T0].offset, release.tenured) == ({}, 2, True)
    member.kafka_answers(done(T0, T1))
    assert member.decides(NOW + PATIENCE_MS) == [told("foreign_offset", T1, 3, 9), LosePartitions(partitions=(T1,))]


def test_f113_while_kafka_refuses_commits_nodes_are_set_and_kafkas_offsets_ignored() -> None:
    member = committing(T0)
    member.kafka_answers(CommitOutcome(refused={T0: UsageError("in use")}))
    assert member.decides() == [failed("in use", T0)]
    for n, offset in enumerate((8, 9, 10)):
        member.asks(commit({T0: offset}))
        [write] = member.decides()
        assert isinstance(write, CommitOffsets)
        member.node(T0, offset, 4 + n, 80 + n)
        assert member.decides() == [committed({T0: offset}), AnswerRequest(number=1)]
    member.asks()
    assert member.decides() == []
    assert member.decides(NOW + 1_000) == [to_kafka({T0: 10}, mzxid=82)]  # without another read
    member.kafka_answers(done(T0))
    assert member.decides(NOW + 1_000) == [WORKS]
    member.asks(commit({T0: 11}))
    assert member.decides(NOW + 1_000) == [reads(T0)]


def test_f112_the_first_commit_finds_an_offset_that_a_stranger_set_back_before_the_start() -> None:
    member = keeper(T0, T1, level=False)
    assert member.decides() == [reads(T0, T1)]
    member.kafka_answers({T0: KafkaCommit(offset=2), T1: KafkaCommit(offset=9_000)})
    assert member.decides() == [told("offset_overwritten", T1, 9_000, 5), to_kafka({T0: 2, T1: 5})]
    member.kafka_answers(done(T0, T1))
    assert member.decides() == [told("foreign_offset", T0, 2, 5), LosePartitions(partitions=(T0,))]


def test_f112_a_stranger_is_followed_though_the_commit_in_its_place_has_no_answer_by_the_node() -> None:
    member = keeper(T0)
    member.asks(commit({T0: 8}))
    member.decides()
    member.kafka_answers({T0: KafkaCommit(offset=2)})
    assert member.decides() == [to_kafka({T0: 2})]
    member.kafka_answers(error=AWAY)
    assert member.decides() == [
        told("foreign_offset", T0, 2, 8),
        LosePartitions(partitions=(T0,)),
        failed("no broker answers", T0),
    ]
    member.runs()
    assert CommitOffsets(held={T0: HELD._replace(offset=2)}, offsets={T0: 2}) in member.decides()


def test_f113_a_stranger_is_not_followed_while_kafka_refuses_commits() -> None:
    member = keeper(T0)
    member.asks(commit({T0: 8}))
    member.decides()
    member.kafka_answers({T0: KafkaCommit(offset=2)})
    assert member.decides() == [to_kafka({T0: 2})]
    member.kafka_answers(CommitOutcome(refused={T0: UsageError("in use")}))
    assert member.decides() == [failed("in use", T0)]
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 8})]
    assert not member.memory.mirror.unfollowed


def test_f113_a_partition_started_while_kafka_refuses_commits_goes_to_its_node_without_a_look() -> None:
    member = committing(T0)
    member.kafka_answers(CommitOutcome(refused={T0: UsageError("in use")}))
    member.decides()
    member.asks()
    member.memory = member.memory.holding({T1: HELD})
    member.runs(T0, T1)
    assert WatchOffsets(partitions=(T1,)) in member.decides()
    assert member.decides() == [to_kafka({T1: 5})]
    member.asks(commit({T1: 6}))
    assert member.decides() == [CommitOffsets(held={T1: HELD}, offsets={T1: 6})]


def test_f135_a_partition_that_kafka_does_not_know_keeps_only_its_own_commits_in_its_node() -> None:
    member = committing(T0, T1)
    member.kafka_answers(CommitOutcome(refused={T0: UnknownPartitionError("gone")}))
    assert member.decides() == [failed("gone", T0)]
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 8})]
    member.node(T0, 8, 4, 80)
    assert member.decides() == [committed({T0: 8}), AnswerRequest(number=1)]
    member.asks(commit({T1: 9}))
    assert member.decides() == [reads(T1)]
    member.kafka_answers({T1: KafkaCommit(offset=2)})
    assert member.decides() == [to_kafka({T1: 2})]


def test_f135_that_kafka_does_not_know_a_partition_does_not_end_its_refusal_of_the_group() -> None:
    member = keeper(T0, level=False)
    member.decides()
    member.kafka_answers({})
    member.decides()
    member.kafka_answers(CommitOutcome(refused={T0: UsageError("in use")}))
    assert member.decides() == [failed("in use", T0)]
    assert member.decides(NOW + 1_000) == [to_kafka({T0: 5})]
    member.kafka_answers(CommitOutcome(refused={T0: UnknownPartitionError("gone")}))
    member.memory = member.memory.holding({T1: HELD})
    member.runs(T0, T1)
    member.decides(NOW + 1_000)
    assert member.decides(NOW + 1_000) == [to_kafka({T1: 5})]  # without another read


def behind_without_an_answer() -> Keeper:
    """A new owner has found a stranger's lower commit. Its own commit in that place got no answer."""
    member = keeper(T0, level=False)
    assert member.decides() == [reads(T0)]
    member.kafka_answers({T0: KafkaCommit(offset=2)})
    assert member.decides() == [to_kafka({T0: 2})]
    member.kafka_answers(CommitOutcome(unknown={T0: AWAY}))
    assert member.decides() == [failed("no broker answers", T0)]
    assert member.decides() == [CommitOffsets(held={T0: HELD}, offsets={T0: 5})]
    member.node(T0, 5, 4, 80)
    assert member.decides() == []
    assert member.decides(NOW + 1_000) == [reads(T0)]
    return member


@pytest.mark.parametrize("found", [KafkaCommit(offset=2), stamped(2)], ids=["the stranger's", "the own one, late"])
def test_f137_a_new_owner_follows_a_set_back_once_kafka_takes_its_commit(
    found: KafkaCommit,
) -> None:
    member = behind_without_an_answer()
    member.kafka_answers({T0: found})
    assert member.decides(NOW + 1_000) == [to_kafka({T0: 2}, mzxid=80)]
    member.kafka_answers(done(T0))
    assert member.decides(NOW + 1_000) == [WORKS, told("foreign_offset", T0, 2, 5), LosePartitions(partitions=(T0,))]
    member.runs()
    member.node(T0, 2, 5, 90)
    assert AskStart(positions={T0: 2}, incarnations={T0: 1}, resumes=True) in member.decides(NOW + 1_000)
    assert not member.memory.mirror.unfollowed


def test_f137_a_set_back_that_is_gone_at_the_next_look_is_not_followed() -> None:
    member = behind_without_an_answer()
    member.kafka_answers({T0: stamped(4, mzxid=60)})
    assert member.decides(NOW + 1_000) == [to_kafka({T0: 5}, mzxid=80)]
    member.kafka_answers(done(T0))
    assert member.decides(NOW + 1_000) == [WORKS]
    assert not member.memory.mirror.unfollowed


def test_f137_a_commit_to_the_node_meanwhile_does_not_make_it_forgotten() -> None:
    member = behind_without_an_answer()
    member.kafka_answers({T0: KafkaCommit(offset=2)})
    assert member.decides(NOW + 1_000) == [to_kafka({T0: 2}, mzxid=80)]
    member.asks(commit({T0: 6}))
    member.decides(NOW + 1_000)
    member.node(T0, 6, 5, 90)
    member.decides(NOW + 1_000)
    member.asks()
    member.kafka_answers(done(T0))
    assert member.decides(NOW + 1_000) == [WORKS]
    assert member.decides(NOW + 1_000) == [reads(T0)]
    member.kafka_answers({T0: stamped(2, mzxid=80)})
    assert member.decides(NOW + 1_000) == [to_kafka({T0: 2}, mzxid=90)]
