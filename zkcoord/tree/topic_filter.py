"""The only place that interprets a wildcard subscription: a Java regex, matched against whole topic names.

Old clients store the regex, and each reader matches it itself, so all must agree. Topic names are ASCII letters,
digits, `.`, `_` and `-`. This leaves few differences between Java's regexes and those of the package `regex` (which,
like Java and unlike `re`, supports classes inside classes, flags in the middle and any lookbehind, and can stop after a
time). Constructs that only Java has are translated. A regex that Java refuses is refused. A regex that is legal in Java
and cannot be translated is refused, too: its meaning must not be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

from zkcoord.tree.codec import corrupt, seen

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
    r"""\\Q.*?(?:\\E|\Z) | \\[pP]\{[^}]*\} | \\k<[^>]*> | \\. | \[[:.=] | \[\^?\]? | \] | && | -- | \|\| | ~~
      | \(\?[a-zA-Z-]*[:)] | \(\?<?[=!] | \(\?> | \(\?<[a-zA-Z][a-zA-Z0-9]*> | \(\?.?
      | \(\* | \{[0-9]+(?:,[0-9]*)?\} | \{ | .""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = frozenset("dDsSwWbBAGzZtnrfahHvVRX123456789")
"""Letters and digits that mean the same after a backslash in both. All others are refused."""
_FLAGS = re.compile(r"\(\?([idmsuU]*)(-[idmsuU]+)?([:)])")
_NO_FLAGS = str.maketrans("", "", "duU")  # flags for line ends and for non-ASCII characters

_TRIMMED = "".join(map(chr, range(33)))  # characters that Java's trim() removes

MATCH_SECONDS = 1.0
"""s for one name. A regex that tries too many ways (`(a+)+b`) would block everything else; it is stopped then."""


def normal_filter(text: str) -> str:
    """A filter in the form in which old clients store it: `,` becomes `|`, and spaces and outer quotes are removed.

    >>> normal_filter(' "clicks, views.*" ')
    'clicks|views.*'
    """
    return text.strip(_TRIMMED).replace(",", "|").replace(" ", "").strip("\"'")


@lru_cache(maxsize=1024)
def topic_pattern(java: str) -> regex.Pattern[str]:
    """The stored Java regex as a pattern for `fullmatch` with a topic's name. Raises CorruptError if it cannot be used.

    >>> bool(topic_pattern("click.*|views").fullmatch("clicks"))
    True
    """
    import regex  # few groups have wildcards

    try:
        return regex.compile(_translated(java), regex.ASCII | regex.V1)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise corrupt("regex", java, f"an invalid regex ({error})") from None


INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's own topics. No wildcard takes them (the default of the old clients' `exclude.internal.topics`)."""


def taken(java: str, topics: Iterable[str], *, black_list: bool = False) -> list[str]:
    """Those of the topics that a wildcard subscription takes, in order; never Kafka's internal ones.

    >>> taken("_.*|a", ["a", "b", "__consumer_offsets", "_c"])
    ['a', '_c']
    """
    return [topic for topic in topics if topic not in INTERNAL and matches(java, topic, black_list=black_list)]


def matches(java: str, topic: str, *, black_list: bool = False, seconds: float = MATCH_SECONDS) -> bool:
    """True when a wildcard subscription takes this topic. Raises CorruptError if that takes longer than
    `seconds`.

    >>> matches("t[0-9]", "t1"), matches("t[0-9]", "t10"), matches("t[0-9]", "t10", black_list=True)
    (True, False, True)
    """
    try:
        return (topic_pattern(java).fullmatch(topic, timeout=seconds) is not None) != black_list
    except TimeoutError:
        raise corrupt("regex", java, f"no answer for the topic {topic} in {seconds} s") from None


def _translated(java: str) -> str:
    out: list[str] = []
    classes: list[str] = []  # the open classes, by their first token
    names: set[str] = set()
    before = ""
    for token in _TOKENS.findall(java):
        flagged, before = before.startswith("(?") and before.endswith(")"), token
        if flagged and not classes and token[0] in "*+?{":
            raise corrupt("regex", java, "an invalid regex (flags cannot be repeated)")
        if token == "]" and classes:
            classes.pop()
            out.append(token)
        elif classes:
            out.append(_in_class(token, java, classes))
        elif token.startswith("["):
            if token[1:] in (":", ".", "="):
                classes.append("[")
            else:
                classes.append(token)
            out.append(_first(token))
        else:
            out.append(_outside(token, java, names))
    return "".join(out)


def _first(token: str) -> str:
    """The beginning of a class. A closing bracket right after it is a plain character."""
    return f"{token[:-1]}\\]" if token.endswith("]") else token


def _in_class(token: str, java: str, classes: list[str]) -> str:
    if token.startswith("[") or token == "&&":
        if token[1:] in (":", ".", "="):
            raise corrupt("regex", java, f"{seen(token)} begins another class in each language")
        if classes[-1].startswith("[^"):
            raise corrupt("regex", java, "classes inside a negated class mean another thing in each Java")
        if token != "&&":
            classes.append(token)
        return token if token == "&&" else _first(token)
    if token in ("--", "||", "~~"):  # plain characters in Java
        return f"{token[0]}\\{token[1]}"
    if token.startswith(("(", "{")):
        return token
    return _escape(token, java, inside=True)


def _outside(token: str, java: str, names: set[str]) -> str:
    if token == "{":
        raise corrupt("regex", java, "an invalid regex (a { that begins no count)")
    if token.startswith("\\k<") and f"(?<{token[3:]}" not in names:
        raise corrupt("regex", java, f"an invalid regex ({seen(token)} is named before its group)")
    if not token.startswith("(") or token == "(":
        return _escape(token, java, inside=False)
    flags = _FLAGS.fullmatch(token)
    if flags is not None:
        on, off = flags[1].translate(_NO_FLAGS), (flags[2] or "").translate(_NO_FLAGS).removesuffix("-")
        return f"(?{on}{off}{flags[3]}" if on or off or flags[3] == ":" else ""
    if token in ("(?=", "(?!", "(?<=", "(?<!", "(?>"):
        return token
    if token.startswith("(?<") and token not in names and token.endswith(">"):
        names.add(token)
        return token
    raise corrupt("regex", java, f"an invalid regex ({seen(token)} is not Java's, or cannot be evaluated here)")


def _escape(token: str, java: str, *, inside: bool) -> str:
    if not token.startswith("\\"):
        return token
    if token.startswith("\\Q"):
        return "".join(f"\\{c}" if not c.isalnum() and c.isascii() else c for c in token[2:].removesuffix("\\E"))
    if token.startswith("\\k<"):
        return f"(?P={token[3:-1]})"
    if token == "\\z":
        return "\\Z"
    if token[:2] not in ("\\p", "\\P"):
        if token[1:].isalnum() and token[1:] not in _ESCAPES:
            raise corrupt("regex", java, f"an invalid regex ({seen(token)} is not Java's, or cannot be evaluated here)")
        return token
    members = _PROPERTIES.get(token[3:-1])
    if members is None or (inside and token[1] == "P"):
        raise corrupt("regex", java, f"{seen(token)} cannot be evaluated here")
    if inside:
        return members
    return f"[{'^' if token[1] == 'P' else ''}{members}]"
