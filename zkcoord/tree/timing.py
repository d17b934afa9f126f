"""The only place that reads and writes the `timing` of a member's status: what became of its last commands.

A status tells the same of a command for minutes; only the ages change. So what does not change of an entry is spelled,
and parsed, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from zkcoord.core.timing import Bounds, Timing
from zkcoord.tree.codec import INT64_MAX, compact, whole

ENTRIES_KEPT = 512
"""So many entries are remembered in each direction: what one coordinator reads of a few hand-overs."""

RANGES = re.compile(r"(?:[0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*)?")
"""Partition numbers as text: "0-9,12". Empty: none."""

AGES = ("seen", "stopped", "committed", "first_record")
"""The keys of an entry's ages, in the order of Timing's fields."""

Partitions = tuple[tuple[str, Bounds], ...]


def encode_timing(entries: Iterable[Timing]) -> list[str]:
    """Return each entry as JSON.

    >>> encode_timing([Timing("0000000003", True, 0, (("clicks", ((0, 9), (12, 12))),), seen_ms=4)])
    ['{"stop":"0000000003","partitions":{"clicks":"0-9,12"},"seen":4}']
    """
    return [f"{_head(*each[:4])}{_ages(*each[4:])}}}" for each in entries]


def _ages(seen_ms: int | None, stopped_ms: int | None, committed_ms: int | None, first_record_ms: int | None) -> str:
    seen = "" if seen_ms is None else f',"seen":{seen_ms}'
    stopped = "" if stopped_ms is None else f',"stopped":{stopped_ms}'
    committed = "" if committed_ms is None else f',"committed":{committed_ms}'
    return seen + stopped + committed + ("" if first_record_ms is None else f',"first_record":{first_record_ms}')


@lru_cache(ENTRIES_KEPT)
def _head(sequence: str, stops: bool, made_ms: int, partitions: Partitions) -> str:
    """An entry but for its ages and the closing brace."""
    made = {"made": str(made_ms)} if made_ms else {}
    texts = {topic: bounds_text(bounds) for topic, bounds in partitions}
    return compact({"stop" if stops else "start": sequence, **made, "partitions": texts}).decode("ascii")[:-1]


def newest(entries: Sequence[str], room: int) -> Sequence[str]:
    """Return the newest entries that have room, in bytes; oldest first, as they are given."""
    if sum(map(len, entries)) <= room:
        return entries
    kept = len(entries)
    for entry in reversed(entries):
        room -= len(entry)
        if room < 0:
            break
        kept -= 1
    return entries[kept:]


def decode_timing(entries: object) -> tuple[Timing, ...]:
    """The entries that can be understood: no decision depends on them, so nothing else is left out for their sake."""
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
    """The number that stands there; below 0: none that may."""
    number = whole(value)
    return -1 if number is None or number > INT64_MAX else number


def _partitions(texts: tuple[tuple[str, object], ...]) -> Partitions | None:
    if not all(isinstance(text, str) for _, text in texts):
        return None
    return _parsed(texts)


@lru_cache(ENTRIES_KEPT)
def _parsed(texts: tuple[tuple[str, str], ...]) -> Partitions | None:
    if not all(RANGES.fullmatch(text) for _, text in texts):
        return None
    return tuple(sorted((topic, tuple(bounds_of_text(text))) for topic, text in texts))


def bounds_text(runs: Iterable[Sequence[int]]) -> str:
    """Lowest and highest number of each range, as text.

    >>> bounds_text([(0, 9), (12, 12)])
    '0-9,12'
    """
    return ",".join([f"{low}" if low == high else f"{low}-{high}" for low, high in runs])


def bounds_of_text(text: str) -> list[tuple[int, int]]:
    """The inverse of `bounds_text`, of a text that RANGES matches."""
    parts = [part.partition("-") for part in text.split(",")] if text else []
    return [(int(low), int(high or low)) for low, _, high in parts]
