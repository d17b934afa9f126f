"""A member's knowledge of its offsets in Kafka, as a value."""

from __future__ import annotations

from collections.abc import Collection

from tests.core.member.members import T0, T1
from zkcoord.core.member.mirror import Acked, Mirror
from zkcoord.core.model import TopicPartition


def known(partitions: Collection[TopicPartition]) -> Mirror:
    """A mirror with every kind of knowledge about these partitions."""
    return Mirror(
        acked=dict.fromkeys(partitions, Acked(5, 70, 1)),
        failing=frozenset(partitions),
        doubtful=dict.fromkeys(partitions, 70),
        unfollowed=dict.fromkeys(partitions, 3),
        watched=frozenset(partitions),
    )


def test_nothing_is_known_of_what_is_not_held_any_more() -> None:
    assert known({T0, T1}).without({T0}) == known({T1})
    assert known({T1}).without({T0}) == known({T1})
