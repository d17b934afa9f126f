"""Writes questions to Kafka and Kafka's answers as a journal's JSON, and reads the answers back."""

from __future__ import annotations

from typing import Any

from zkcoord.core.topic_answers import Broker, Cluster, Described, Listed, Question, Told
from zkcoord.errors import UnavailableError
from zkcoord.shell.ports import CallDone


def of_call(token: int, name: str, argument: Any) -> dict[str, Any]:
    """Return a call as JSON.

    >>> from zkcoord.core.topic_answers import Kind
    >>> of_call(1, "ask_kafka", Question(Kind.DESCRIBE, ("clicks",)))
    {'call': 1, 'name': 'ask_kafka', 'kind': 'describe', 'topics': ['clicks']}
    """
    line = {"call": token, "name": name}
    if isinstance(argument, Question):
        line |= {"kind": argument.kind.value, "topics": list(argument.topics)}
    return line


def of_done(done: CallDone) -> dict[str, Any]:
    """Return the outcome of a call as JSON.

    >>> of_done(CallDone(1, Described({"clicks": Told("J9yF", {0: (1,)})})))
    {'called': 1, 'described': [['clicks', 'J9yF', [[0, 1]], False]]}
    """
    line: dict[str, Any] = {"called": done.token}
    if done.error is not None:
        return {**line, "error": str(done.error)}
    match done.value:
        case Listed(cluster_id, brokers, shapes, whole):
            return {**line, "listed": [cluster_id, sorted(brokers), dict(shapes), whole]}
        case Described(topics):
            return {**line, "described": [_of_told(name, told) for name, told in topics.items()]}
        case Cluster(cluster_id, brokers):
            return {**line, "cluster": [cluster_id, [[number, *one] for number, one in brokers.items()]]}
    return line


def to_done(line: dict[str, Any]) -> CallDone:
    """Return the outcome of a call from a line.

    >>> done = CallDone(1, Listed("c", frozenset({1}), {"clicks": "0:1"}))
    >>> to_done(of_done(done)) == done
    True
    """
    token = line["called"]
    match line:
        case {"error": why}:
            return CallDone(token, None, UnavailableError(why))
        case {"listed": [cluster_id, brokers, shapes, whole]}:
            return CallDone(token, Listed(cluster_id, frozenset(brokers), shapes, whole))
        case {"described": topics}:
            return CallDone(token, Described({name: _to_told(rest) for name, *rest in topics}))
        case {"cluster": [cluster_id, brokers]}:
            return CallDone(token, Cluster(cluster_id, {number: Broker(*rest) for number, *rest in brokers}))
    return CallDone(token)


def _of_told(name: str, told: Told) -> list[Any]:
    partitions = None if told.partitions is None else [[number, *ids] for number, ids in told.partitions.items()]
    return [name, told.topic_id, partitions, told.missing]


def _to_told(line: list[Any]) -> Told:
    topic_id, partitions, missing = line
    return Told(topic_id, None if partitions is None else {number: tuple(ids) for number, *ids in partitions}, missing)
