"""The only place that reads and writes the `timing` in a member's status: the outcomes of its last commands.

A status tells the same about a command for minutes; only the ages change. So the constant part of an entry is written,
and parsed, only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from zkcoord.core.timing import Ranges, Timing
from zkcoord.tree.codec import INT64_MAX, compact, whole
from zkcoord.tree.ranges import RANGES, bounds_in, bounds_text

ENTRIES_KEPT = 512
"""Number of remembered entries in each direction: about what one coordinator reads in a few hand-overs."""

AGES = ("seen", "stopped", "committed", "first_record")
"""The keys of an entry's ages, in the order of Timing's fields."""


def encode_timing(entries: Iterable[Timing]) -> list[str]:
    """Return each entry as JSON.

    >>> encode_timing([Timing("0000000003", True, 0, (("clicks", ((0, 9), (12, 12))),), seen_ms=4)])
    ['{"stop":"0000000003","partitions":{"clicks":"0-9,12"},"seen":4}']
    """
    return [f"{_head(*each[:4])}{_ages(each[4:])}}}" for each in entries]


def _ages(ages: Iterable[int | None]) -> str:
    return "".join([f',"{name}":{age_ms}' for name, age_ms in zip(AGES, ages, strict=True) if age_ms is not None])


@lru_cache(ENTRIES_KEPT)
def _head(sequence: str, stops: bool, made_ms: int, partitions: Ranges) -> str:
    """An entry without its ages and the closing brace."""
    made = {"made": str(made_ms)} if made_ms else {}
    texts = {topic: bounds_text(bounds) for topic, bounds in partitions}
    return compact({"stop" if stops else "start": sequence, **made, "partitions": texts}).decode("ascii")[:-1]


def newest(entries: Sequence[str], room: int) -> Sequence[str]:
    """Return the newest entries that fit into `room` bytes, oldest first."""
    kept = len(entries)
    for entry in reversed(entries):
        room -= len(entry)
        if room < 0:
            break
        kept -= 1
    return entries[kept:]


def decode_timing(entries: object) -> tuple[Timing, ...]:
    """The entries that can be parsed. The others are skipped: no decision depends on them, so they must not make the
    status unreadable."""
    told = [_told(each) for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    return tuple(each for each in told if each is not None)


def _told(entry: Mapping[str, Any]) -> Timing | None:
    stops = "stop" in entry
    sequence, texts = entry.get("stop" if stops else "start"), entry.get("partitions")
    made_ms = _number(entry.get("made") or 0)
    if not isinstance(sequence, str) or not isinstance(texts, dict) or made_ms < 0:
        return None
    partitions = _partitions(tuple(texts.items()))
    ages = [None if value is None else _number(value) for value in map(entry.get, AGES)]
    if partitions is None or any(age_ms is not None and age_ms < 0 for age_ms in ages):
        return None
    return Timing(sequence, stops, made_ms, partitions, *ages)


def _number(value: object) -> int:
    """The number in `value`; below 0 if there is no valid one."""
    number = whole(value)
    return -1 if number is None or number > INT64_MAX else number


def _partitions(texts: tuple[tuple[str, object], ...]) -> Ranges | None:
    if not all(isinstance(text, str) for _, text in texts):
        return None
    return _parsed(texts)


@lru_cache(ENTRIES_KEPT)
def _parsed(texts: tuple[tuple[str, str], ...]) -> Ranges | None:
    if not all(RANGES.fullmatch(text) for _, text in texts):
        return None
    return tuple(sorted((topic, tuple(bounds_in(text))) for topic, text in texts))
