"""Kafka's answers about a group's offsets become commits. No server."""

from __future__ import annotations

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Native

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit
from zkcoord.errors import UnavailableError
from zkcoord.offsets.commit_parts import commits_in


def unavailable(error: KafkaError, doing: str) -> UnavailableError:
    return UnavailableError(doing)


def test_the_offset_0_is_a_commit_and_what_kafka_tells_of_none_is_not() -> None:
    told = [Native("t", 0, 0), Native("t", 1, -1001), Native("t", 2, 7)]
    assert commits_in(told, "g", unavailable) == {
        TopicPartition("t", 0): KafkaCommit(offset=0),
        TopicPartition("t", 2): KafkaCommit(offset=7),
    }
