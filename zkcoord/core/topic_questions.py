"""Decides the next question to Kafka, so that the mirror of its topics stays up to date."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from zkcoord.core.topic_answers import Kind, Question
from zkcoord.core.topic_mirror import DESCRIBE_MAX, Memory, Mirror

RETRIED_MAX = 100
"""Topics in one question that are asked for again because their last answer told nothing that counts. If there are
more, they take turns."""

NAMED_MAX = 200
"""Topics in one small question between two others. librdkafka takes the answer in within 50 ms of CPU. If groups name
more topics, each poll asks for the next ones."""

CLUSTER_MS = 30_000
"""ms between two questions for brokers and their racks. A new broker is asked for at once."""


def next_question(mirror: Mirror, memory: Memory, now_ms: int) -> tuple[Question, Memory]:
    """Return the next question. Lists alternate with a check of the ids of some topics, which covers all topics in
    turn."""
    if memory.lists and (memory.cluster_ms is None or now_ms >= memory.cluster_ms + CLUSTER_MS):
        return Question(Kind.CLUSTER), memory
    if memory.last is Kind.LIST or memory.urgent:
        retried = sorted(memory.due & memory.left_out)[:RETRIED_MAX]
        names = [*retried, *sorted(memory.due - memory.left_out)][:DESCRIBE_MAX]
        known = sorted(mirror.topics.keys() | memory.left_out)
        rest = [name for name in known if name > memory.checked][: DESCRIBE_MAX - len(names)]
        if names or rest:
            checked = rest[-1] if rest and rest[-1] != known[-1] else ""
            topics = tuple(dict.fromkeys([*names, *rest]))
            return Question(Kind.DESCRIBE, topics), replace(memory, last=Kind.DESCRIBE, checked=checked)
    return Question(Kind.LIST), replace(memory, last=Kind.LIST)


def question_between(memory: Memory, named: Set[str]) -> tuple[Question, Memory] | None:
    """Return a small question to ask while the next question of `next_question` waits, which takes long in a large
    cluster.

    It is about few topics: those with news, then those that groups name (`named`), all of them in turn. None: no list
    of this cluster was seen yet, or there is no such topic. It does not affect the order of the other questions.
    """
    if memory.shapes is None:
        return None
    names = sorted(memory.due - memory.left_out)[:NAMED_MAX]
    others = sorted(named)
    ahead = [name for name in others if name > memory.named][: NAMED_MAX - len(names)]
    turned = ahead[-1] if ahead and ahead[-1] != others[-1] else ""
    topics = tuple(dict.fromkeys([*names, *ahead]))
    return (Question(Kind.DESCRIBE, topics), replace(memory, named=turned)) if topics else None
