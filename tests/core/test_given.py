"""Arguments of the public classes: an error about a wrong one says what was passed, and what to pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from zkcoord.core.given import given_number, given_offsets, given_partition, given_partitions, given_ranges
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError

P = TopicPartition("t", 0)


class Foreign(NamedTuple):
    """Another library's partition."""

    topic: str
    partition: int


WRONG_PARTITIONS: list[Any] = [
    *(("t", 0), ["t", 0], "t-0", None, 0, Foreign("t", 0), b"t-0"),
    *(TopicPartition(None, 0), TopicPartition("t", "0"), TopicPartition("t", -1), TopicPartition("t", 1.0)),  # type: ignore[arg-type]
    *(TopicPartition("t", True), TopicPartition(b"t", 0)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG_PARTITIONS, ids=repr)
def test_f63_a_wrong_partition_is_refused_wherever_one_is_given(wrong: Any) -> None:
    told = r"is no partition: pass zkcoord\.TopicPartition\(topic, number\)"
    with pytest.raises(UsageError, match=told):
        given_partition(wrong)
    with pytest.raises(UsageError, match=told):
        given_partitions([P, wrong])
    if type(wrong) is list:  # a list cannot be a key
        return
    with pytest.raises(UsageError, match=told):
        given_offsets({TopicPartition("u", 1): 5, wrong: 5})
    with pytest.raises(UsageError, match=told):
        given_ranges({TopicPartition("u", 1): (5, 6), wrong: (5, 6)})


@pytest.mark.parametrize("wrong", [None, 7, "t-0", [(P, 5)], {P}], ids=repr)
def test_f63_a_wrong_mapping_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"is no mapping: pass \{zkcoord\.TopicPartition"):
        given_offsets(wrong)
    with pytest.raises(UsageError, match=r"is no mapping: pass \{zkcoord\.TopicPartition"):
        given_ranges(wrong)


@pytest.mark.parametrize("wrong", [None, 7, "t", b"t", P], ids=repr)
def test_f63_a_collection_without_partitions_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="holds no partitions: pass a collection"):
        given_partitions(wrong)


@pytest.mark.parametrize("wrong", [5, (5,), (5, 6, 7), ("5", "6"), (5.0, 6.0), (6, 5), (5, 5), (-1, 5), (5, 2**63)])
def test_f63_a_wrong_range_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"t-0: .* is no range: pass \(start, end\)"):
        given_ranges({P: wrong})


@pytest.mark.parametrize("wrong", [None, "7", 7.0, True, -1, 2**63])
def test_f63_a_wrong_count_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"lag is {wrong!r}: pass an integer of 0 or more"):
        given_number("lag", wrong)


class Seven:
    """A whole number of another library, like NumPy's."""

    def __index__(self) -> int:
        return 7


def test_f63_right_values_come_back_as_plain_integers() -> None:
    seven: Any = Seven()
    offsets, ranges = given_offsets({P: seven}), given_ranges({P: [5, seven]})  # type: ignore[dict-item]
    assert (offsets, ranges, given_number("lag", seven)) == ({P: 7}, {P: (5, 7)}, 7)
    assert {type(value) for value in (offsets[P], *ranges[P])} == {int}
    assert given_partitions({P: 5}) == (P,)
