"""The range assignor against what real Kafka 0.8.2.2, 0.11.0.2 and 1.1.1 members computed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from zkcoord.core.assignors import ASSIGNORS, AssignmentError, AssignorInput, check_assignment
from zkcoord.core.model import Subscriber, TopicPartition

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "legacy_vectors.json").read_text(encoding="utf-8"))
SETTLED = [vector for vector in VECTORS if vector["strategy"] == "range" and "error" not in vector]
INTERNAL = {"__consumer_offsets", "__transaction_state"}


def given(subscribers: dict[str, dict[str, int]], partitions: dict[str, int]) -> AssignorInput:
    return AssignorInput(
        subscribers=tuple(Subscriber(consumer_id=name, threads=threads) for name, threads in subscribers.items()),
        partitions={topic: tuple(range(count)) for topic, count in partitions.items()},
        owned={},
        preferred={},
    )


def decoded(text: str) -> dict[str, Any]:
    """A registration as the old members read it: JSON; if that fails, JSON with every backslash doubled."""
    try:
        document = json.JSONDecoder().raw_decode(text.strip())[0]
    except json.JSONDecodeError:
        document = json.JSONDecoder().raw_decode(text.strip().replace("\\", "\\\\"))[0]
    assert isinstance(document, dict)
    return document


def threads_of(vector: dict[str, Any], text: str) -> dict[str, int] | None:
    """Topic to streams of one registration; None when it cannot be said without the old members' own map order."""
    document = decoded(text)
    subscription = document["subscription"]
    if document["pattern"] not in ("white_list", "black_list"):
        return dict(subscription)
    if not subscription:
        return {}
    if len(subscription) > 4:
        return None  # the first entry of a Scala map, which keeps its order up to four entries only
    pattern, streams = next(iter(subscription.items()))
    wanted = document["pattern"] == "white_list"
    internal = INTERNAL if vector["exclude_internal"] else set()
    return {
        topic: streams
        for topic in vector["topics"]
        if (re.fullmatch(pattern, topic) is not None) == wanted and topic not in internal
    }


def partitions_of(size: int | list[int]) -> tuple[int, ...]:
    return tuple(range(size)) if isinstance(size, int) else tuple(sorted(size))


def expressible(vector: dict[str, Any]) -> bool:
    return all(threads_of(vector, text) is not None for text in vector["registrations"].values())


def test_every_settled_range_vector_of_the_old_members_comes_out_the_same() -> None:
    checked = 0  # of 41, all but "white_list with six entries" of each version
    for vector in filter(expressible, SETTLED):
        members = {name: threads_of(vector, text) or {} for name, text in vector["registrations"].items()}
        group = AssignorInput(
            subscribers=tuple(Subscriber(consumer_id=name, threads=threads) for name, threads in members.items()),
            partitions={topic: partitions_of(size) for topic, size in vector["topics"].items()},
            owned={},
            preferred={},
        )
        answer = ASSIGNORS["range"](group)
        owners = {
            TopicPartition(topic, int(partition)): thread
            for topic, shares in vector["owners"].items()
            for partition, thread in shares.items()
        }
        assert answer == owners, (vector["name"], vector["version"])
        check_assignment(group, answer)
        checked += 1
    assert (checked, len(SETTLED)) == (38, 41)


def test_threads_stand_in_the_string_order_of_their_ids() -> None:
    answer = ASSIGNORS["range"](given({"c": {"t": 11}}, {"t": 12}))
    assert [answer[TopicPartition("t", partition)] for partition in range(5)] == ["c-0", "c-0", "c-1", "c-10", "c-2"]


def test_threads_stand_in_the_order_of_utf16_code_units_not_of_code_points() -> None:
    answer = ASSIGNORS["range"](given({"\uff5e": {"t": 1}, "\U0001f600": {"t": 1}}, {"t": 2}))
    assert answer == {TopicPartition("t", 0): "\U0001f600-0", TopicPartition("t", 1): "\uff5e-0"}


def test_each_topic_is_shared_by_itself_among_its_own_subscribers() -> None:
    answer = ASSIGNORS["range"](given({"a": {"x": 1, "y": 1}, "b": {"x": 1}}, {"x": 3, "y": 1, "z": 1}))
    assert answer == {
        TopicPartition("x", 0): "a-0",
        TopicPartition("x", 1): "a-0",
        TopicPartition("x", 2): "b-0",
        TopicPartition("y", 0): "a-0",
    }


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "x-0 has subscribers and no thread"),
        ({("x", 0): "b-0"}, "x-0 is given to 'b-0', which is no thread of a subscriber of 'x'"),
        ({("x", 0): "a-1"}, "x-0 is given to 'a-1', which is no thread of a subscriber of 'x'"),
        ({("x", 0): "a-0", ("y", 0): "a-0"}, "y-0 is assigned, but it does not exist or nobody subscribed it"),
        ({("x", 0): "a-0", ("x", 1): "a-0"}, "x-1 is assigned, but it does not exist or nobody subscribed it"),
    ],
)
def test_a_wrong_answer_is_refused_with_what_is_wrong(answer: dict[tuple[str, int], str], message: str) -> None:
    group = given({"a": {"x": 1}, "b": {"w": 1}}, {"x": 1, "y": 1})
    with pytest.raises(AssignmentError, match=message):
        check_assignment(group, {TopicPartition(*pair): thread for pair, thread in answer.items()})


def test_a_right_answer_is_accepted() -> None:
    check_assignment(given({"a": {"x": 1}}, {"x": 1, "y": 1}), {TopicPartition("x", 0): "a-0"})
    check_assignment(given({}, {"x": 1}), {})
