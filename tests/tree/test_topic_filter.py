"""Wildcards: a stored Java regex has the same meaning here as for the old clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import QUICK, reads_or_refuses
from zkcoord.errors import CorruptError
from zkcoord.tree.topic_filter import matches, normal_filter, topic_pattern


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (r"foo\.bar,ba z.*", r"foo\.bar|baz.*"),
        ("'a,b'", "a|b"),
        ('"\' a "', "a"),
        ("(t|T)[0-9]{1,2}", "(t|T)[0-9]{1|2}"),
    ],
)
def test_a_filter_is_stored_as_the_old_clients_store_it(written: str, stored: str) -> None:
    assert normal_filter(written) == stored


@pytest.mark.parametrize(
    ("regex", "taken", "left"),
    [
        ("a|A|t1", ["a", "A", "t1"], ["t10", "b", ""]),
        ("^events$", ["events"], ["events2", "my.events"]),
        (".*", ["a", "x.y_z-1"], []),
        ("[^_].*", ["a_"], ["_hidden"]),
        (r"foo\\.bar", [r"foo\xbar"], ["foo.bar"]),
        (r"foo\.bar", ["foo.bar"], ["fooxbar"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\p{Lower}+[\p{Digit}-]*", ["ab1-2"], ["Ab"]),
        (r"\P{Alpha}+", ["12-3"], ["a"]),
        (r"(?<x>ab?)-\k<x>", ["a-a", "ab-ab"], ["a-ab"]),
        (r"(?i)clicks", ["CLICKS", "clicks"], ["click"]),
        (r"(?!__).*(?<!-tmp)", ["a"], ["__a", "a-tmp"]),
        (r"t\d{1,2}", ["t1", "t12"], ["t", "t123"]),
        (r"[a||b]", ["a", "b"], ["c"]),
        (r"[+--a]", ["a", "-"], ["b"]),
        (r"a*+b", ["aab"], ["aa"]),
        (r"\w+\z", ["ab"], ["a-b"]),
        ("[a-z&&[^b]]+", ["ac"], ["ab"]),
        ("[ab[x-z]]+", ["axb"], ["c"]),
        ("[a-f&&c-z]", ["c", "f"], ["a", "g"]),
        ("a(?i)b", ["ab", "aB"], ["AB"]),
        ("(?i:a)b", ["Ab", "ab"], ["AB"]),
        ("(?<=^(x|yy))a|.*(?<!t.{0,3})z", ["az"], ["tz", "txxz", "a"]),
        ("(?u)a(?-i)b", ["ab"], ["aB"]),
    ],
)
def test_a_java_regex_takes_and_leaves_whole_names(regex: str, taken: list[str], left: list[str]) -> None:
    assert [name for name in taken + left if matches(regex, name)] == taken
    assert [name for name in taken + left if matches(regex, name, black_list=True)] == left


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("t[", "an invalid regex"),
        ("{2}", "an invalid regex"),
        ("[0-9]{1|2}", "a { that begins no count"),
        ("*a", "an invalid regex"),
        ("a{99999999999}", "an invalid regex"),
        ("(?P<x>a)", "is not Java's"),
        ("[^a-z&&[^b]]", "mean another thing in each Java"),
        ("[[:alpha:]]", "begins another class"),
        (r"\Ka", "is not Java's"),
        (r"\01", "cannot be evaluated here"),
        ("(?|a|b)", "is not Java's"),
        ("(?x)a b", "cannot be evaluated here"),
        ("(?<n>a)(?<n>b)", "is not Java's"),
        ("(*PRUNE)a", "an invalid regex"),
        ("a(?i){2}", "flags cannot be repeated"),
        (r"\k<x>(?<x>a)", "is named before its group"),
        (r"\p{IsGreek}", "cannot be evaluated here"),
        (r"[\P{Lower}x]", "cannot be evaluated here"),
        ("\\\u00b2", r"('\\\xb2' is not Java's"),
        ("(?<\u00e9>a)", "is not Java's"),
        ("\\k<" + "x" * 900 + ">", "is named before its group"),
        ("\\p{" + "\u00e9" * 900 + "}", "cannot be evaluated here"),
        ("(" * 5000, "an invalid regex"),
    ],
)
def test_regexes_refused_by_java_or_python_are_refused(regex: str, reason: str) -> None:
    with pytest.raises(CorruptError, match="bad regex") as caught:
        topic_pattern(regex)
    message = str(caught.value)
    assert reason in message
    assert message.isascii() and len(message) < 600


def test_a_regex_that_would_take_for_ever_is_given_up() -> None:
    with pytest.raises(CorruptError, match=r"no answer for the topic a+ in 0\.05 s"):
        matches("(a|aa)+b", "a" * 200, seconds=0.05)


@QUICK
@given(st.text(alphabet="ab01[](){}|&-~^$.*+?\\,<>!=:PpQEkLdz#\n\u00b2\u00e9", max_size=15))
def test_no_text_raises_anything_else(regex: str) -> None:
    reads_or_refuses(lambda data: matches(data.decode(), "ab"), regex.encode())
