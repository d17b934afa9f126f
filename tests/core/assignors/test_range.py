"""The range assignor's rules one by one, and the check of every answer. (test_assignor_legacy has the answers of real
members.)"""

from __future__ import annotations

import pytest

from zkcoord.core.assignors import ASSIGNORS, AssignmentError, AssignorInput, check_assignment
from zkcoord.core.model import Subscriber, TopicPartition


def given(subscribers: dict[str, dict[str, int]], partitions: dict[str, int]) -> AssignorInput:
    return AssignorInput(
        subscribers=tuple(Subscriber(consumer_id=name, threads=threads) for name, threads in subscribers.items()),
        partitions={topic: tuple(range(count)) for topic, count in partitions.items()},
        owned={},
    )


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
        ({}, "x-0 has subscribers with room for it and no thread"),
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
