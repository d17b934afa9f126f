"""The common part of all codecs: edge cases of keys, numbers and JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import QUICK, objects, partitions
from zkcoord.core.given import shown
from zkcoord.core.model import TopicPartition
from zkcoord.tree.codec import DEPTH_MAX, compact, parse_json, partition_of, seen, whole


@QUICK
@given(partitions)
def test_a_partitions_text_names_it(partition: TopicPartition) -> None:
    assert partition_of(str(partition)) == partition


@pytest.mark.parametrize("key", ["", "-", "t", "t-", "-1", "t-01", "t--1x", "t-2147483648", "..-1", "a b-1", "t-1\n"])
def test_other_keys_name_no_partition(key: str) -> None:
    assert partition_of(key) is None


@pytest.mark.parametrize("value", [True, None, 1.0, "", "01", "+1", " 1", "1_0", "-0", "1e3", "9" * 20, [1]])
def test_a_non_integer_is_none(value: object) -> None:
    assert whole(value) is None


def test_integers_and_their_texts_are_whole() -> None:
    assert [whole(value) for value in (0, "0", -1, "-1", 2**63, "9223372036854775807")] == [
        0,
        0,
        -1,
        -1,
        2**63,
        2**63 - 1,
    ]


@QUICK
@given(objects)
def test_a_document_reads_back_as_written_in_ascii(document: dict[str, object]) -> None:
    assert parse_json(compact(document).decode("ascii")) == document


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_depth_is_limited(opening: str) -> None:
    closing = "}" if opening == '{"a":' else "]"
    parse_json(opening * DEPTH_MAX + "1" + closing * DEPTH_MAX)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(opening * (DEPTH_MAX + 1) + "1" + closing * (DEPTH_MAX + 1))


@pytest.mark.parametrize("text", ["NaN", "-Infinity", '{"a":1e999}', "1 2", "\ufeff1", ""])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_text_after_the_value_is_ignored_only_on_request() -> None:
    assert parse_json(" \n{}x", trailing=True) == {}


@QUICK
@given(st.binary(max_size=200))
def test_seen_data_is_one_short_ascii_line(data: bytes) -> None:
    assert seen(data).isascii() and "\n" not in seen(data) and len(seen(data)) <= 83


def test_a_large_value_is_shown_cut() -> None:
    assert shown(list(range(10_000))) == ascii(list(range(10_000)))[:80] + "..."
