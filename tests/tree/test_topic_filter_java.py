"""A wildcard has the same meaning here as in Java: random regexes are compared with the answers of a real Java."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from zkcoord.errors import CorruptError
from zkcoord.tree.topic_filter import matches

pytestmark = pytest.mark.spark  # for its Java, which answers by way of py4j

ATOMS = [
    r"a",
    r"b",
    r"A",
    r"B",
    r"0",
    r"1",
    r".",
    r"_",
    r"-",
    r"[ab]",
    r"[^a]",
    r"[a-z&&[^b]]",
    r"[a[01]]",
    r"\d",
    r"\w",
    r"\W",
    r"\.",
    r"(a|b)",
    r"(?:ab)",
    r"(?i)",
    r"(?-i)",
    r"(?=a)",
    r"(?!a)",
    r"(?<=a)",
    r"(?<!ab)",
    r"(?<x>a)",
    r"\k<x>",
    r"\1",
    r"^",
    r"$",
    r"|",
    r"*",
    r"+",
    r"?",
    r"{1,2}",
    r"{2}",
    r"*+",
    r"+?",
    r"\Qa.b\E",
    r"\p{Lower}",
    r"\b",
    r"\B",
    r"\A",
    r"\z",
    r"\Z",
    r"(",
    r")",
    r"[",
    r"]",
    r"&&",
    r"\h",
    r"\v",
    r"\s",
    r"(?>a|ab)",
    r"(?i:b)",
]
NAMES = ["", "a", "b", "ab", "aB", "AB", "a.b", "01", "a-b", "_", "aab", "abab", "a0", "ba", "b1.a"]
REGEXES = 1_000
COMPARED_MIN = 400


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """`java.util.regex.Pattern`."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    yield gateway.jvm.java.util.regex.Pattern
    gateway.shutdown()
    gateway.proc.stdin.close()  # this ends its Java
    assert gateway.proc.wait(120) is not None


def in_java(pattern: Any, regex: str) -> list[bool] | None:
    """Whether each name matches in Java; None: Java refuses the regex."""
    from py4j.protocol import Py4JJavaError

    try:
        compiled = pattern.compile(regex)
        return [compiled.matcher(name).matches() for name in NAMES]
    except Py4JJavaError:
        return None


def here(regex: str) -> list[bool] | None:
    """The same, as zkcoord answers."""
    try:
        return [matches(regex, name) for name in NAMES]
    except CorruptError:
        return None


def test_an_accepted_regex_matches_as_in_java(java: Any) -> None:
    draw, compared = Random(7), 0
    for _ in range(REGEXES):
        regex = "".join(draw.choice(ATOMS) for _ in range(draw.randint(1, 5)))
        ours = here(regex)
        if ours is not None:
            compared += 1
            assert (regex, in_java(java, regex)) == (regex, ours)
    assert compared > COMPARED_MIN
