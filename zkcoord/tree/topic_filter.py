"""The only place that knows what a wildcard subscription means: a Java regex, matched against whole topic names.

Old clients store the regex and each reader matches it itself, so all must agree. Topic names are ASCII letters,
digits, `.`, `_` and `-`, which leaves few differences between Java's regexes and Python's; those that Java alone knows
are translated, what Java refuses is refused, and what is legal in Java and cannot be told in Python (nested classes,
`&&`, scripts) is refused with that reason: a registration nobody here can evaluate must not be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from zkcoord.tree.codec import corrupt

_PROPERTIES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "L": "a-zA-Z",
    "IsAlphabetic": "a-zA-Z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
    "Nd": "0-9",
    "IsDigit": "0-9",
    "ASCII": "\\x00-\\x7f",
}
_TOKENS = re.compile(
    r"""\\Q.*?(?:\\E|\Z) | \\[pP]\{[^}]*\} | \\k<[^>]*> | \\. | \[\^?\]? | \] | && | -- | \|\| | ~~
      | \(\?<(?![=!]) | \(\?[P\#(] | \{[0-9]+(?:,[0-9]*)?\} | \{ | .""",
    re.VERBOSE | re.DOTALL,
)


def normal_filter(text: str) -> str:
    """A filter as the old clients store it: `,` means or, spaces and outer quotes are dropped.

    >>> normal_filter(' "clicks, views.*" ')
    'clicks|views.*'
    """
    return text.strip().replace(",", "|").replace(" ", "").strip("\"'")


@lru_cache(maxsize=1024)
def topic_pattern(regex: str) -> re.Pattern[str]:
    """The stored Java regex as a Python pattern for `fullmatch` with a topic's name, or CorruptError.

    >>> bool(topic_pattern("click.*|views").fullmatch("clicks"))
    True
    """
    try:
        return re.compile(_python_regex(regex), re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise corrupt("regex", regex, f"an invalid regex ({error})") from None


INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's own topics: no wildcard takes them (`exclude.internal.topics` of the old clients, at its default)."""


def taken(regex: str, topics: Iterable[str], *, black_list: bool = False) -> list[str]:
    """Those of the topics that a wildcard subscription takes, in their order; Kafka's internal ones never.

    >>> taken("_.*|a", ["a", "b", "__consumer_offsets", "_c"])
    ['a', '_c']
    """
    return [topic for topic in topics if topic not in INTERNAL and matches(regex, topic, black_list=black_list)]


def matches(regex: str, topic: str, *, black_list: bool = False) -> bool:
    """True when a wildcard subscription takes this topic.

    >>> matches("t[0-9]", "t1"), matches("t[0-9]", "t10"), matches("t[0-9]", "t10", black_list=True)
    (True, False, True)
    """
    return (topic_pattern(regex).fullmatch(topic) is not None) != black_list


def _python_regex(java: str) -> str:
    out = []
    inside = False  # of a character class
    for token in _TOKENS.findall(java):
        if token.startswith("[") and not inside:
            inside = True
        elif token == "]" and inside:
            inside = False
        elif inside:
            token = _in_class(token, java)
        else:
            token = _outside(token, java)
        out.append(token)
    return "".join(out)


def _in_class(token: str, java: str) -> str:
    if token.startswith("[") or token == "&&":
        raise corrupt("regex", java, "character classes inside classes cannot be evaluated here")
    if token in ("--", "||", "~~"):  # plain characters in Java, reserved in Python
        return f"{token[0]}\\{token[1]}"
    if token.startswith("(?"):
        return token
    return _escape(token, java, inside=True)


def _outside(token: str, java: str) -> str:
    if token == "{":
        raise corrupt("regex", java, "an invalid regex (a { that begins no count)")
    if token == "(?<":
        return "(?P<"
    if token.startswith("(?"):
        raise corrupt("regex", java, f"an invalid regex ({token} is not Java's)")
    return _escape(token, java, inside=False)


def _escape(token: str, java: str, *, inside: bool) -> str:
    if token.startswith("\\Q"):
        return re.escape(token[2:].removesuffix("\\E"))
    if token.startswith("\\k<"):
        return f"(?P={token[3:-1]})"
    if token == "\\z":
        return "\\Z"
    if token[:2] not in ("\\p", "\\P"):
        return token
    members = _PROPERTIES.get(token[3:-1])
    if members is None or (inside and token[1] == "P"):
        raise corrupt("regex", java, f"{token[:40]} cannot be evaluated here")
    if inside:
        return members
    return f"[{'^' if token[1] == 'P' else ''}{members}]"
