"""JSON as Scala's own parser reads it (`scala.util.parsing.json`), with the number parser of Kafka 0.8 to 0.11.

That parser accepts text that is no JSON: a backslash before any letter counts as a plain one, and control characters
may be between tokens and in strings. It refuses some JSON: any number except a 32-bit integer, wherever it is.
"""

from __future__ import annotations

import json
import re
from typing import Any

from zkcoord.tree.codec import INT32_MAX, parse_json

_TOKEN = re.compile(
    r"""(?P<space>[\x00-\x19\x1b-\x20]+)
      | "(?P<string>(?:\\["\\/bfnrt] | \\u[0-9a-fA-F]{4} | [^"\n\x1a])*+)"
      | (?P<number>-?[\x00-\x19\x1b-\x20]*(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      | (?P<word>true|false|null)
      | (?P<sign>[{}\[\]:,])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_MEANS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def parse_scala_json(text: str) -> Any:
    """The object or array in the text. Raises ValueError for text that an old member cannot read.

    >>> parse_scala_json('{"foo\\\\.bar":1}')
    {'foo\\\\.bar': 1}
    """
    tokens: list[str] = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"character {place} begins nothing that Scala's JSON knows")
        place = found.end()
        if found["string"] is not None:
            tokens.append(json.dumps(_ESCAPE.sub(_meaning, found["string"])))
        elif found["number"] is not None:
            tokens.append(str(_int32(found["number"])))
        elif found["space"] is None:
            tokens.append(found[0])
    value = parse_json(" ".join(tokens))
    if not isinstance(value, dict | list):
        raise ValueError("neither an object nor an array")
    return value


def _meaning(escape: re.Match[str]) -> str:
    letter, unit = escape.groups()
    return chr(int(unit, 16)) if unit else _MEANS.get(letter, letter)


def _int32(text: str) -> int:
    digits = "".join(c for c in text if c > " ")
    if len(digits) > 11 or not digits.lstrip("-").isdigit() or not -INT32_MAX - 1 <= int(digits) <= INT32_MAX:
        raise ValueError(f"the number {digits[:20]} is no integer of 32 bits")
    return int(digits)
