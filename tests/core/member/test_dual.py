"""How a member keeps offsets in both stores, ZooKeeper first. Each test gives it views, and compares all its
decisions."""

from __future__ import annotations

from tests.core.member.members import FIRST, ME, NOW, T0, T1, commit, start, stop
from tests.core.member.stores import (
    CHECKPOINT_MS,
    HELD,
    PATIENCE_MS,
    WORKS,
    Keeper,
    done,
    failed,
    reads,
    stamped,
    to_kafka,
)
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    AnswerRequest,
    AskReset,
    AskStart,
    AskStop,
    CommitOffsets,
    LookUp,
    ReleasePartitions,
    Report,
    Versions,
)
from zkcoord.core.member.status import Held
from zkcoord.core.member.view import Position
from zkcoord.core.quarantine import BROKER
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.core.view import Owner
from zkcoord.errors import UnavailableError, UsageError

AWAY = UnavailableError("no broker answers")


def looked_up(*partitions: object, store: str = "dual", **positions: Position) -> Keeper:
    """A member that obeys a start and has read the nodes, but has not asked Kafka yet."""
    member = Keeper(store=store)
    member.finds(start(T0, T1, offsets=store, incarnations={"t": 1}))
    [look] = member.decides()
    assert isinstance(look, LookUp)
    owners = {T0: Owner(ME, 0), T1: Owner(ME, 0)}
    member.reads({T0: positions.get("t0", Position(5, 3, None, 70)), T1: Position(6, 1, None, 71)}, owners)
    return member


def test_a_start_asks_both_stores_and_sets_every_node_to_where_it_begins() -> None:
    member = looked_up()
    assert member.decides() == [reads(T0, T1, starting=1)]
    assert member.decides() == []
    member.kafka_answers({T0: stamped(9, 70), T1: stamped(9, 70)})  # the commit of T1 is of another tenure
    assert member.decides() == [AskStart(positions={T0: 9, T1: 6}, incarnations={T0: 1, T1: 1})]
    member.called("start", T0, T1, number=1)
    member.answers()
    [acknowledge] = member.decides()
    assert isinstance(acknowledge, AcknowledgeStarts)
    assert acknowledge.first == {T0: (9, Versions(0, 3)), T1: (6, Versions(0, 1))}
    assert acknowledge.status.store == "dual"
    member.finds()
    member.reads({T0: Position(9, 4, None, 90), T1: Position(6, 2, None, 90)})
    member.decides()
    assert member.memory.held == {
        T0: Held(ME, 0, 9, 4, 1, 1, mzxid=90),
        T1: Held(ME, 0, 6, 2, 1, 1, mzxid=90),
    }
    assert member.decides() == [to_kafka({T0: 9, T1: 6}, mzxid=90)]  # the commit is repeated to Kafka in the new tenure


def test_a_commit_of_an_earlier_incarnation_or_tree_counts_as_none() -> None:
    member = looked_up()
    member.decides()
    assert member.view.log is not None
    member.kafka_answers({T0: stamped(9, 70, incarnation=0)})
    assert member.decides() == [AskStart(positions={T0: 9, T1: 6}, incarnations={T0: 1, T1: 1})]
    other = looked_up(t0=Position(None, None))
    other.finds(start(T0, T1, offsets="dual", incarnations={"t": 1}))
    other.decides()
    other.kafka_answers({T0: stamped(9, 70)})
    assert other.decides()[0] == AskStart(positions={T0: 9, T1: 6}, incarnations={T0: 1, T1: 1})  # no node: Kafka's


def test_a_partition_that_neither_store_knows_starts_by_the_reset_policy_and_its_node_is_made() -> None:
    member = looked_up(t0=Position(None, None))
    member.decides()
    member.kafka_answers({})
    assert member.decides() == [AskReset(partitions=(T0,))]
    member.called("reset", T0)
    member.answers({T0: 100})
    assert member.decides() == [AskStart(positions={T0: 100, T1: 6}, incarnations={T0: 1, T1: 1})]
    member.called("start", T0, T1, number=1)
    member.answers()
    [acknowledge] = member.decides()
    assert isinstance(acknowledge, AcknowledgeStarts)
    assert acknowledge.first == {T0: (100, Versions(0, None)), T1: (6, Versions(0, 1))}


def test_f109_a_start_whose_commits_kafka_does_not_tell_is_refused_as_the_brokers_fault() -> None:
    for error, now_ms, why in (
        (AWAY, NOW, f"{BROKER}: no broker answers"),
        (None, NOW + PATIENCE_MS, f"{BROKER}: Kafka did not tell the group's offsets within {PATIENCE_MS} ms"),
        (UsageError("no right to read"), NOW, "no right to read"),
    ):
        member = looked_up()
        member.decides()
        if error is not None:
            member.kafka_answers(error=error)
        [acknowledge] = member.decides(now_ms)
        assert isinstance(acknowledge, AcknowledgeStarts)
        assert {p: r.reason for p, r in acknowledge.status.refused.items()} == {T0: why, T1: why}
        assert acknowledge.refused == {T0: Versions(0, 3), T1: Versions(0, 1)}


def test_f109_a_late_answer_is_not_taken_for_that_to_a_later_question() -> None:
    member = looked_up()
    member.decides()
    member.decides(NOW + PATIENCE_MS)  # the start is given up and refused
    member.finds()
    member.reads({}, {T0: Owner("", 1), T1: Owner("", 1)})
    member.decides(NOW + PATIENCE_MS)
    member.finds(start(T0, T1, sequence="0000000001", offsets="dual", versions=2, incarnations={"t": 1}))
    member.decides(NOW + PATIENCE_MS)
    member.reads({T0: Position(8, 5, None, 85), T1: Position(8, 5, None, 85)}, dict.fromkeys((T0, T1), Owner(ME, 2)))
    assert member.decides(NOW + PATIENCE_MS) == [reads(T0, T1, starting=2)]
    member.kafka_answers({T0: stamped(1, 85), T1: stamped(1, 85)})  # the late answer to the first read
    assert member.decides(NOW + PATIENCE_MS) == []
    member.kafka_answers({T0: stamped(9, 85), T1: stamped(9, 85)})
    assert member.decides(NOW + PATIENCE_MS)[0] == AskStart(positions={T0: 9, T1: 9}, incarnations={T0: 1, T1: 1})


def test_a_commit_is_answered_once_its_node_is_set_and_kafka_follows_with_the_last_one_only() -> None:
    member = Keeper(T0)
    for n, offset in enumerate((8, 9, 10)):
        member.asks(commit({T0: offset}))
        node = HELD._replace(offset=5 if n == 0 else offset - 1, offset_version=3 + n, mzxid=70 + n)
        assert member.decides()[0] == CommitOffsets(held={T0: node}, offsets={T0: offset})
        member.node(T0, offset, 4 + n, 71 + n)
        decisions = member.decides()
        assert decisions[1:] == [AnswerRequest(number=1)]
        member.asks()
        if n == 0:
            assert member.decides() == [to_kafka({T0: 8}, mzxid=71)]
    assert member.decides() == []  # one commit at a time
    member.kafka_answers(done(T0))
    assert member.decides() == [to_kafka({T0: 10}, mzxid=73)]
    member.kafka_answers(done(T0))
    assert member.decides() == []
    assert member.decides() == []


def test_a_refused_commit_to_kafka_is_told_once_and_retried_with_one_first() -> None:
    member = Keeper(T0, T1, level=False)
    assert member.decides() == [to_kafka({T0: 5, T1: 5})]
    member.kafka_answers(CommitOutcome(refused=dict.fromkeys((T0, T1), UsageError("in use"))))
    assert member.decides() == [failed("in use", T0, T1)]
    assert member.decides(NOW + 999) == []
    assert member.decides(NOW + 1_000) == [to_kafka({T1: 5})]
    member.kafka_answers(error=AWAY)
    assert member.decides(NOW + 1_000) == []  # it was reported already
    assert member.decides(NOW + 2_999) == []
    assert member.decides(NOW + 3_000) == [to_kafka({T0: 5})]
    member.kafka_answers(done(T0))
    assert member.decides(NOW + 3_000) == [to_kafka({T1: 5})]
    member.kafka_answers(done(T1))
    assert member.decides(NOW + 3_000) == [WORKS]


def test_a_call_that_is_never_answered_is_given_up_and_no_other_is_made_beside_it() -> None:
    member = Keeper(T0, level=False)
    member.decides()
    late_ms = NOW + 2 * PATIENCE_MS
    assert member.decides(late_ms - 1) == []
    assert member.decides(late_ms) == [failed(f"Kafka did not answer within {2 * PATIENCE_MS} ms", T0)]
    assert member.decides(late_ms + 60_000) == []
    member.kafka_answers(done(T0))  # the late answer does not count: a later commit may have replaced this one
    assert member.decides(late_ms + 60_000) == [to_kafka({T0: 5})]


def test_an_answer_of_an_earlier_tenure_says_nothing_of_the_present_one() -> None:
    member = Keeper(T0, level=False)
    member.decides()
    member.node(T0, 2, 4, 80)  # somebody sets the node
    assert [d.event for d in member.decides() if isinstance(d, Report)] == ["foreign_offset"]
    member.runs()
    member.called("start", T0, number=2, resumes=True)
    member.kafka_answers(done(T0))
    assert to_kafka({T0: 2}, mzxid=80) in member.decides()


def test_f110_an_hour_old_commit_is_committed_to_kafka_again() -> None:
    member = Keeper(T0, T1)
    assert member.decides() == []
    assert member.decides(NOW + CHECKPOINT_MS - 1) == []
    hour_ms = NOW + CHECKPOINT_MS
    assert member.decides(hour_ms) == [to_kafka({T0: 5, T1: 5})]
    member.kafka_answers(done(T0, T1))
    assert member.decides(hour_ms) == []
    assert member.decides(hour_ms + CHECKPOINT_MS - 1) == []
    assert member.decides(hour_ms + CHECKPOINT_MS) == [to_kafka({T0: 5, T1: 5})]


def test_a_release_sets_every_node_and_does_not_wait_for_kafka() -> None:
    member = Keeper(T0, T1, level=False)
    assert member.decides() == [to_kafka({T0: 5, T1: 5})]
    member.finds(stop(T0))
    assert member.decides() == [AskStop(partitions=(T0,))]
    member.called("stop", T0)
    member.answers({T0: 9})
    [release] = member.decides()
    assert isinstance(release, ReleasePartitions)
    assert (release.offsets, release.tenured, release.commands) == ({T0: 9}, True, {FIRST: 0})


def test_a_foreign_commit_in_kafka_is_not_looked_at_in_dual() -> None:
    member = looked_up()
    member.decides()
    member.kafka_answers({T0: KafkaCommit(offset=1)})
    assert member.decides() == [AskStart(positions={T0: 5, T1: 6}, incarnations={T0: 1, T1: 1})]
