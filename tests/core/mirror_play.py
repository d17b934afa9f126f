"""A mirror of Kafka's topics, played answer by answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zkcoord.core.topic_answers import Answer, Broker, Cluster, Described, Kind, Listed, Question, Told, shape_of
from zkcoord.core.topic_mirror import (
    CONFIRM_MS,
    Change,
    Complete,
    Memory,
    Mirror,
    PutTopic,
    RemoveTopic,
    Topic,
    over_with,
    take,
)
from zkcoord.core.topic_questions import next_question

T = Topic(topic_id="idT", partitions={0: (1,), 1: (1,)})
U = Topic(topic_id="idU", partitions={0: (1,)})
ABSENT = Told(missing=True)
NOTHING = Told()
B1 = Broker("h1", 9092, "r1")
STEP_MS = CONFIRM_MS // 2


class Play:
    """A mirror in a tree that gets answers. The test moves the time."""

    def __init__(self, *, whole: bool = True, **topics: Topic) -> None:
        self.mirror = Mirror(cluster_id="c", topics=topics, brokers={1: B1}, whole=whole)
        self.memory = Memory()
        self.now_ms = 10_000

    def take(self, answer: Answer) -> tuple[Change, ...]:
        """Give the mirror an answer, and apply its changes. Returns the changes."""
        self.memory, changes = take(self.mirror, self.memory, answer, self.now_ms)
        for change in changes:
            self._write(change)
        return changes

    def _write(self, change: Change) -> None:
        topics, over = dict(self.mirror.topics), self.mirror.over
        if isinstance(change, PutTopic):
            topics[change.name] = change.topic
            over = over_with(over, [(change.name, change.replaces)] if change.replaces else [])
        elif isinstance(change, RemoveTopic):
            del topics[change.name]
            over = over_with(over, [(change.name, change.topic_id)])
        whole = self.mirror.whole or isinstance(change, Complete)
        self.mirror = replace(self.mirror, topics=topics, over=over, whole=whole)

    def listed(self, cluster_id: str = "c", *, whole: bool = True, **topics: Topic) -> tuple[Change, ...]:
        """Give it a list with these topics."""
        shapes = {name: shape_of(topic.partitions) for name, topic in topics.items()}
        return self.take(Listed(cluster_id, frozenset({1}), shapes, whole))

    def told(self, **topics: Topic | Told) -> tuple[Change, ...]:
        """Give it a description of these topics."""
        found = {n: t if isinstance(t, Told) else Told(t.topic_id, t.partitions) for n, t in topics.items()}
        return self.take(Described(found))

    def question(self) -> Question:
        """The next question."""
        question, self.memory = next_question(self.mirror, self.memory, self.now_ms)
        return question

    def described(self) -> tuple[str, ...]:
        """The topic names of the next description that is asked for."""
        for _ in range(4):
            question = self.question()
            if question.kind is Kind.DESCRIBE:
                return question.topics
            if question.kind is Kind.CLUSTER:
                self.take(Cluster("c", self.mirror.brokers))
        raise AssertionError("no topic is asked for")

    def later(self, ms: int) -> None:
        self.now_ms += ms


def grown(topic: Topic, partitions: Iterable[int]) -> Topic:
    return replace(topic, partitions=dict.fromkeys(partitions, (1,)))
