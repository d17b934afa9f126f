"""Changes an input a little: in its bytes, or, where it is JSON, in one of its values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

WILD: list[Any] = [
    *(None, True, False, -1, 0, 1, 1.5, 1e308, float("inf"), float("nan"), 2**31, 2**63, -(2**63) - 1, 10**30),
    *("", " ", "x", "7", "-1", "01", "+7", "1e3", "\u0661", "\ud800", "\0", "t-0", "t--1", "g_a-1-0", "!g_a-1-0"),
    *([], {}, [[]], [None], {"": 0}, {"t": {}}, ["1", "2"], ["2", "1", 3], {"0": None}, {"t-0": [1, 2]}, "9" * 40),
]
PIECES = (b"\0", b"\xff", b"\xc3", b'"', b"\\u", b"\\", b"{", b"[", b":", b",", b"-", b"9" * 20, b"\n", b"\xef\xbb\xbf")
LENGTH_MAX = 20_000


def mutated(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the data with one to three changes; `others` are inputs of which a piece may be taken."""
    for _ in range(draw.randint(1, 3)):
        change = draw.choice((_value, _value, _value, _bits, _pieces, _cut, _crossed))
        data = change(draw, data, others)[:LENGTH_MAX]
    return data


def _value(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A value of the document is exchanged, left out, doubled, or taken from another document."""
    try:
        document = json.loads(data)
        places = list(_places(document))
    except (ValueError, RecursionError):
        return _bits(draw, data, others)
    if not places:
        return json.dumps(draw.choice(WILD)).encode()
    parent, key = draw.choice(places)
    what = draw.randrange(4)
    if what == 0:
        parent[key] = draw.choice(WILD)
    elif what == 1:
        del parent[key]
    elif what == 2 and isinstance(parent, dict):
        parent[draw.choice(("x-later", "version", str(draw.choice(WILD)), f"{key}0"))] = parent[key]
    else:
        parent[key] = _from_another(draw, others)
    return json.dumps(document).encode()


def _from_another(draw: Random, others: Sequence[bytes]) -> Any:
    try:
        places = list(_places(json.loads(draw.choice(others))))
    except (ValueError, RecursionError):
        places = []
    if not places:
        return draw.choice(WILD)
    parent, key = draw.choice(places)
    return parent[key]


def _places(value: Any) -> Any:
    children = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, child in children:
        yield value, key
        yield from _places(child)


def _bits(draw: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    changed = bytearray(data or b"\0")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _pieces(draw: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + draw.choice(PIECES) + data[at + draw.choice((0, 0, 1)) :]


def _cut(draw: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    start = draw.randint(0, len(data))
    return (
        data[:start] + data[draw.randint(start, min(len(data), start + 8)) :] if draw.random() < 0.7 else data[:start]
    )


def _crossed(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = draw.choice(others)
    return data[: draw.randint(0, len(data))] + other[draw.randint(0, len(other)) :]
