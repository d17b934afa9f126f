"""Reads a registration as an old member of one version does: how many threads each topic gets, or why the reading
fails.

Every old member reads the registrations of all members at each rebalance, and fails if it cannot read one of them.
`zkcoord.tree.registration` accepts a text that *any* version can read. This module follows one version, as exactly as
its behaviour is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkcoord.core.assignors.legacy.java_order import immutable_order
from zkcoord.core.given import shown
from zkcoord.errors import CorruptError
from zkcoord.legacy.versions import OldVersion
from zkcoord.tree.codec import INT32_MAX, corrupt, parse_json
from zkcoord.tree.registration import BLACK_LIST, THREADS_MAX, WHITE_LIST
from zkcoord.tree.scala_json import parse_scala_json
from zkcoord.tree.topic_filter import MATCH_SECONDS, matches, normal_filter, topic_pattern

_WHAT = "registration"

Taken = Callable[[str, bool], Sequence[str]]
"""Regex, and whether it is a black list -> the topics that this wildcard takes (`matched`). Members share wildcards,
and some of these are slow: whoever reads many members keeps the answers."""


class WildcardError(CorruptError):
    """A regex that Java refuses, or that cannot be evaluated here. A member with another version of Java may evaluate
    it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSubscription:
    """One member's subscription. `counts`: topic -> threads, or with a `wildcard` its regex -> threads."""

    counts: Mapping[str, Any]  # as it was written; `threads` fails at a value that is no count, as old members do
    wildcard: str | None = None
    black_list: bool = False

    def threads(self, taken: Taken) -> dict[str, int]:
        """Return topic -> threads, in the order of the text; for a wildcard, in the order of `taken`.

        CorruptError for a count at which old members fail.
        """
        regex = self.wildcard
        if regex is None:
            return {topic: _count(topic, count) for topic, count in self.counts.items()}
        return {topic: _count(regex, self.counts[regex]) for topic in taken(regex, self.black_list)}


def matched(regex: str, topics: Iterable[str], *, black_list: bool, seconds: float = MATCH_SECONDS) -> list[str]:
    """Return those of the topics that a wildcard takes, in their order. WildcardError if it cannot be evaluated, or
    takes longer than `seconds` for one of them."""
    try:
        return [topic for topic in topics if matches(regex, topic, black_list=black_list, seconds=seconds)]
    except CorruptError as error:
        raise WildcardError(str(error)) from None


def read_as(version: OldVersion, text: str) -> OldSubscription:
    """Return the subscription that a member of this version reads. CorruptError, with the reason, if the text makes the
    member's rebalance fail."""
    document = _document(version, text)
    if "pattern" not in document or "subscription" not in document:
        missing = "pattern" if "pattern" not in document else "subscription"
        raise corrupt(_WHAT, text, f"{missing} is missing")
    pattern, counts = document["pattern"], document["subscription"]
    if not isinstance(pattern, str) and (version.jackson or pattern is not None):
        raise corrupt(_WHAT, text, f"pattern is {shown(pattern)}, not a text")
    if not isinstance(counts, dict):
        raise corrupt(_WHAT, text, f"subscription is {shown(counts)}, not an object")
    if version.jackson:
        for name, count in counts.items():
            if not _is_int32(count):
                raise corrupt(_WHAT, text, f"subscription gives {shown(name)} the count {shown(count)}")
    if not counts or pattern not in (WHITE_LIST, BLACK_LIST):
        return OldSubscription(counts=counts)
    first = immutable_order(counts)[0]
    regex = normal_filter(first)
    try:
        topic_pattern(regex)
    except CorruptError as error:
        raise WildcardError(str(error)) from None
    return OldSubscription(counts={regex: counts[first]}, wildcard=regex, black_list=pattern == BLACK_LIST)


def _document(version: OldVersion, text: str) -> dict[str, Any]:
    try:
        value = _jackson(version, text) if version.jackson else parse_scala_json(text)
    except ValueError as error:
        raise corrupt(_WHAT, text, f"no JSON to Kafka {version.text} ({error})") from None
    if not isinstance(value, dict):
        raise corrupt(_WHAT, text, "not a JSON object")
    return value


def _jackson(version: OldVersion, text: str) -> Any:
    try:
        return parse_json(text, trailing=True)
    except ValueError:
        if not version.doubles_backslashes:
            raise
        return parse_json(text.replace("\\", "\\\\"), trailing=True)


def _count(name: str, count: object) -> int:
    if not _is_int32(count) or not isinstance(count, int) or count < 1:
        raise CorruptError(f"{shown(name)} is given {shown(count)} threads: old members fail unless it is at least 1")
    if count > THREADS_MAX:
        raise CorruptError(f"{shown(name)} is given {count} threads: more than {THREADS_MAX} are not planned here")
    return count


def _is_int32(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -INT32_MAX - 1 <= value <= INT32_MAX
