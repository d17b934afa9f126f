"""The only place that writes partition numbers as text, and reads them: ascending, with neighbours joined
("0-3,12")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from zkcoord.core.model import TopicPartition
from zkcoord.tree.codec import INT32_MAX, corrupt

PARTITIONS_MAX = 1_000_000  # numbers in one text, so that a short text cannot fill the memory

RANGES = re.compile(r"(?:[0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*)?")
"""Such a text, which need not be ascending. Empty: no numbers."""


def ranges_text(numbers: Iterable[int]) -> str:
    """Partition numbers as text, ascending, with neighbours joined.

    >>> ranges_text([12, 0, 1, 2, 3])
    '0-3,12'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return bounds_text(runs)


def parse_ranges(text: str) -> tuple[int, ...]:
    """The inverse of `ranges_text`: the numbers, ascending. Raises CorruptError for any other text, and for more than
    PARTITIONS_MAX.

    >>> parse_ranges("0-3,12"), parse_ranges("")
    ((0, 1, 2, 3, 12), ())
    """
    if not RANGES.fullmatch(text):
        raise corrupt("ranges", text, 'allowed is ascending numbers and ranges as "0-9,12"')
    bounds = bounds_in(text)
    edges = [edge for low, high in bounds for edge in (low, high)]
    if any(low > high for low, high in bounds) or any(a[1] >= b[0] for a, b in pairwise(bounds)):
        raise corrupt("ranges", text, "not ascending")
    if edges and (edges[-1] > INT32_MAX or count_of(text) > PARTITIONS_MAX):
        raise corrupt("ranges", text, f"more than {PARTITIONS_MAX} partitions, or one beyond {INT32_MAX}")
    return tuple(chain.from_iterable([range(low, high + 1) for low, high in bounds]))


def ranges_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, str]:
    """The partitions' numbers as text, by topic.

    >>> ranges_by_topic([TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("a", 4)])
    {'a': '4', 't': '0-1'}
    """
    numbers: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return {topic: ranges_text(found) for topic, found in numbers.items()}


def partitions_in(topics: Mapping[str, str]) -> frozenset[TopicPartition]:
    """The inverse of `ranges_by_topic`. Raises CorruptError for a text that `parse_ranges` does not take."""
    return frozenset(TopicPartition(topic, number) for topic, text in topics.items() for number in parse_ranges(text))


def count_of(text: str) -> int:
    """How many numbers a text names. RANGES must match the text."""
    return sum(high - low + 1 for low, high in bounds_in(text))


def bounds_text(runs: Iterable[Sequence[int]]) -> str:
    """Lowest and highest number of each range, as text.

    >>> bounds_text([(0, 9), (12, 12)])
    '0-9,12'
    """
    return ",".join([f"{low}" if low == high else f"{low}-{high}" for low, high in runs])


def bounds_in(text: str) -> list[tuple[int, int]]:
    """The inverse of `bounds_text`. RANGES must match the text."""
    parts = [part.partition("-") for part in text.split(",")] if text else []
    return [(int(low), int(high or low)) for low, _, high in parts]
