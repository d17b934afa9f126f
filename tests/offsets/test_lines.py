"""Exported offsets as text, both formats."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.offsets.lines import FORMATS, JSON, LINES, Exported, parsed, written

ONE = Exported("g", TopicPartition("clicks.raw", 12), 1234)


def test_a_line_is_that_of_the_old_tools_and_a_json_line_names_all() -> None:
    assert written(ONE, LINES) == "/consumers/g/offsets/clicks.raw/12:1234"
    assert written(ONE, JSON) == '{"group":"g","topic":"clicks.raw","partition":12,"offset":1234}'


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="/"), min_size=1, max_size=30),
    st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,30}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.sampled_from(FORMATS),
)
def test_every_offset_comes_back_in_either_format(
    group: str, topic: str, partition: int, offset: int, form: str
) -> None:
    one = Exported(group, TopicPartition(topic, partition), offset)
    assert parsed(written(one, form) + "\n", 1) == one


def test_blank_lines_hold_nothing_and_numbers_in_json_may_be_text() -> None:
    assert parsed("\n", 1) is None
    assert parsed('{"group":"g","topic":"clicks.raw","partition":"12","offset":"1234","more":1}', 1) == ONE


@pytest.mark.parametrize(
    "line",
    [
        *("x", "/consumers/g/offsets/t/0", "/consumers/g/offsets/t/0:-1", "/consumers/g/offsets/t/07:1", "{", "{}"),
        *("/consumers/g/owners/t/0:1", "/consumers/g/offsets/t/0:99999999999999999999", "/consumers//offsets/t/0:1"),
        "/consumers/g/offsets/two words/0:1",
        "/consumers/g/offsets/t/0:9999999999999999999",
        '{"group":"g","topic":"t","partition":0}',
        '{"group":"g","topic":"t","partition":-1,"offset":1}',
        '{"group":7,"topic":"t","partition":0,"offset":1}',
    ],
)
def test_a_line_that_is_no_offset_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(UsageError, match=r"line 7: .* is no offset; a line is /consumers/GROUP"):
        parsed(line, 7)
