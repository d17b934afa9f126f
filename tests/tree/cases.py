"""Values and damaged documents for the tests of codecs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.errors import CorruptError

QUICK = settings(max_examples=60, deadline=None)

topics = st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,12}", fullmatch=True)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))
counters = st.integers(0, 2**63 - 1)
ranges = st.tuples(counters, counters).map(lambda pair: (min(pair), max(pair)))
announced = st.builds(
    lambda pair, *numbers: Announced(*pair, *numbers), ranges, st.integers(0, 2**31), st.integers(0, 9)
)
texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
objects = st.dictionaries(texts, values, max_size=3)
unknown_keys = st.dictionaries(texts.map(lambda key: f"x-{key}"), values, max_size=3)

_WILD: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    "",
    "x",
    "7",
    "\ud800",
    [],
    {},
    [[]],
    {"": 0},
    ["1", "2"],
    ["2", "1", 3],
]
HOSTILE = [
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[]",
    b"NaN",
    b'{"version":NaN}',
    b'{"version":1e999}',
    b'{"version":' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"version":2}',
    b'{"version":"x"}',
    b"{}x",
    b'"',
    b"\\",
    b"\0",
]


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, child in children for path in _paths(child, (*here, key)))]


@st.composite
def damaged(draw: st.DrawFn, document: bytes) -> bytes:
    """The document with one value replaced, or with some bytes replaced or cut out."""
    if draw(st.booleans()):
        start = draw(st.integers(0, len(document)))
        return document[:start] + draw(st.binary(max_size=4)) + document[draw(st.integers(start, len(document))) :]
    value = json.loads(document)
    *path, last = draw(st.sampled_from(_paths(value)[1:]))
    parent = value
    for key in path:
        parent = parent[key]
    parent[last] = draw(st.sampled_from(_WILD) | values)
    return json.dumps(value).encode()


def reads_or_refuses(decode: Callable[[bytes], Any], data: bytes) -> str | None:
    """Decode the data. Returns None if that works, else the message of the CorruptError. Any other exception fails the
    test."""
    try:
        decode(data)
    except CorruptError as error:
        message = str(error)
        assert message.isascii() and "\n" not in message and len(message) < 600, message
        return message
    return None
