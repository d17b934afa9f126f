"""Scala's JSON, as the members of 0.8 to 0.11 read registrations with it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.legacy.groups import takes
from tests.tree.cases import HOSTILE, QUICK, reads_or_refuses, values
from zkcoord.legacy.reading import read_as
from zkcoord.legacy.versions import old_version
from zkcoord.tree.scala_json import parse_scala_json

VERSIONS = tuple(map(old_version, ("0.8.0", "0.8.2.2", "0.11.0.2", "1.0.0", "1.1.1")))
int32 = st.integers(-(2**31), 2**31 - 1)
plain = st.recursive(
    st.none() | st.booleans() | int32 | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=9,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"foo\.bar":1}', {r"foo\.bar": 1}),
        (r'{"a\bc":1}', {"a\bc": 1}),
        (r'["\u0041\u00e4", "\/", "\u12g", "\\"]', ["A\u00e4", "/", "\\u12g", "\\"]),
        ('\x00{\x0b"t" : - 5 }\r\n', {"t": -5}),
        ('{"a\tb":null}', {"a\tb": None}),
        ('{"t":1,"t":2}', {"t": 2}),
        ("[true,false]", [True, False]),
        (r'["\ud83d\ude00"]', ["\U0001f600"]),
    ],
)
def test_we_read_what_scala_reads(text: str, value: object) -> None:
    assert parse_scala_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "1",
            '"a"',
            "null",
            "t",
            "{} x",
            "{}{}",
            "[1,]",
            '{"a"}',
            "[01]",
            "[1.5]",
            "[1.]",
            "[1e3]",
            "[2147483648]",
        ),
        *(
            '["a\nb"]',
            '["a\x1ab"]',
            "[\x1a]",
            "[truex]",
            "[truefalse]",
            "[NaN]",
            r'["a\"]',
            "*4*white.*",
            "[1 2]",
            "[-]",
            "[" * 9999,
        ),
    ],
)
def test_we_refuse_what_scala_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_scala_json(text)
    assert str(caught.value).isascii()


@QUICK
@given(st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=5), plain, max_size=3), st.booleans())
def test_json_without_large_numbers_means_what_it_means_to_everybody(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    if "\x1a" not in text:  # this character ends Scala's text; the escape in JSON does not
        assert parse_scala_json(text) == value


@QUICK
@given(st.text(alphabet='{}[]:,"\\ub01.eE+- tn\n\x1a\x00\ud800', max_size=20) | values.map(json.dumps))
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    with suppress(ValueError):
        parse_scala_json(text)


@QUICK
@given(st.binary(max_size=30) | st.sampled_from(HOSTILE), st.sampled_from(VERSIONS))
def test_a_member_of_any_version_reads_bytes_or_refuses_them(data: bytes, version: Any) -> None:
    def threads(given: bytes) -> object:
        return read_as(version, given.decode("utf-8", "replace")).threads(takes("t", "__consumer_offsets"))

    reads_or_refuses(threads, data)
