"""Changes between a read of Kafka (or a commit without an answer) and the next commit to Kafka."""

from __future__ import annotations

from tests.core.member.members import NOW, T0, T1, commit
from tests.core.member.stores import HELD, Keeper, failed, reads
from zkcoord.core.member.application import CallKind
from zkcoord.core.member.decisions import AskStart, CommitOffsets, CommitToKafka, Decision, LosePartitions
from zkcoord.core.member.mirror import RETRY_MS
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError

AWAY = UnavailableError("no broker answers")


def looking() -> Keeper:
    """A member in the store `kafka` that reads Kafka's commit before it commits T0."""
    member = Keeper(T0, T1, store="kafka")
    member.asks(commit({T0: 8}))
    assert member.decides() == [reads(T0)]
    return member


def to_kafka(decisions: list[Decision]) -> list[CommitToKafka]:
    """The commits to Kafka among these decisions."""
    return [each for each in decisions if isinstance(each, CommitToKafka)]


def test_a_partition_lost_since_the_look_is_not_committed() -> None:
    member = looking()
    member.has(leased=False)
    assert member.decides()[0] == LosePartitions(partitions=(T0, T1), ignored=CallKind.RESUME)
    member.runs()
    assert to_kafka(member.decides()) == []
    member.kafka_answers({})
    assert to_kafka(member.decides()) == []


def test_an_offset_set_in_zookeeper_since_the_look_is_not_overwritten() -> None:
    member = looking()
    member.node(T0, 3, 4, 80)
    assert LosePartitions(partitions=(T0,)) in member.decides()
    member.runs(T1)
    assert member.decides() == [AskStart(positions={T0: 3}, incarnations={T0: 1}, resumes=True)]
    member.runs(T0, T1)
    member.decides()
    assert member.memory.readable == {T0, T1}
    member.kafka_answers({})
    assert to_kafka(member.decides()) == []


def test_nothing_is_committed_in_a_tenure_that_must_end_though_its_node_cannot_be_set_for_long() -> None:
    """An earlier commit in that tenure may still land and replace this one."""
    member = Keeper(T0, store="kafka", level=False)
    member.asks(commit({T0: 8}))
    assert member.decides() == [reads(T0)]
    member.kafka_answers({})
    assert len(to_kafka(member.decides())) == 1
    member.kafka_answers(CommitOutcome(unknown={T0: AWAY}))
    member.has(ready=False)
    assert member.decides() == [failed("no broker answers", T0)]
    member.asks()
    assert member.decides() == member.decides(NOW + RETRY_MS) == []
    member.has(ready=True)
    member.decides(NOW + RETRY_MS)
    assert member.decides(NOW + RETRY_MS) == [CommitOffsets(held={T0: HELD}, offsets={T0: 5})]
