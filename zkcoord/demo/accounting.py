"""Checks the demo's result by logs and files alone: every record is there; for how long each partition was unowned.
Pure.

The record with sequence number n of a partition has offset n in that partition, since one idempotent producer is the
only writer. A file is named by its range. The batch that a kill interrupts is replayed with the same ranges, so no
record is there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from zkcoord.demo.events import Event


class Range(NamedTuple):
    """Records of one partition, from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int


class Output(NamedTuple):
    """One file: the range in its name, and the sequence numbers of its rows."""

    range: Range
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The count. `interrupted`: records of the batch that the kill interrupted; `foreign`: rows that are in a wrong
    file, or that nobody produced."""

    produced: int
    processed: int
    lost: int
    duplicated: int
    interrupted: int
    foreign: int

    @property
    def fine(self) -> bool:
        """True when each record is there exactly once, and no other record is there."""
        return self.lost == self.duplicated == self.foreign == 0


class Unowned(NamedTuple):
    """Nobody read the partition from `from_ms` to `to_ms` (monotonic)."""

    partition: str
    from_ms: int
    to_ms: int

    @property
    def ms(self) -> int:
        """The length of this time, in milliseconds."""
        return self.to_ms - self.from_ms


def parse_range(text: str) -> Range:
    """Return the range that a file's name without its suffix spells, or a range as a batch's event spells it.

    >>> parse_range("my-clicks-3-100-600")
    Range(partition=3, start=100, end=600)
    """
    _, partition, start, end = text.rsplit("-", 3)
    return Range(int(partition), int(start), int(end))


def count_records(produced: Mapping[int, int], outputs: Iterable[Output], interrupted: Iterable[Range] = ()) -> Records:
    """Compare the outputs with `produced`: partition -> count of records, whose sequence numbers are 0 to count - 1."""
    seen = {partition: bytearray(count) for partition, count in produced.items()}
    processed = foreign = 0
    for output in outputs:
        partition, start, end = output.range
        counts = seen.get(partition, bytearray())
        processed += len(output.numbers)
        for number in output.numbers:
            if start <= number < end and number < len(counts):
                counts[number] = min(counts[number] + 1, 255)
            else:
                foreign += 1
    return Records(
        produced=sum(produced.values()),
        processed=processed,
        lost=sum(counts.count(0) for counts in seen.values()),
        duplicated=sum(times - 1 for counts in seen.values() for times in counts if times > 1),
        interrupted=sum(each.end - each.start for each in interrupted),
        foreign=foreign,
    )


@dataclass(slots=True)
class _Tenure:
    """One consumer reads one partition."""

    consumer: str
    start_ms: int
    end_ms: int | None = None


def unowned_times(logs: Iterable[Sequence[Event]], gone_ms: Mapping[str, int]) -> list[Unowned]:
    """Return each time between two readers of a partition, from the consumers' event logs, sorted by its begin.

    `gone_ms`: consumer id -> when its registration was seen to be gone. A consumer that died counts as a reader until
    then. The time before a partition's first start and after its last stop does not count.
    """
    tenures: dict[str, list[_Tenure]] = {}
    for log in logs:
        for partition, its in _tenures(log, gone_ms).items():
            tenures.setdefault(partition, []).extend(its)
    found = []
    for partition, its in tenures.items():
        its.sort(key=lambda each: each.start_ms)
        for before, after in pairwise(its):
            if before.end_ms is not None:
                found.append(Unowned(partition, before.end_ms, max(before.end_ms, after.start_ms)))
    return sorted(found, key=lambda each: (each.from_ms, each.partition))


def _tenures(log: Sequence[Event], gone_ms: Mapping[str, int]) -> dict[str, list[_Tenure]]:
    """Return which partitions one consumer program read and when, under all its registrations."""
    tenures: dict[str, list[_Tenure]] = {}
    reading: dict[str, _Tenure] = {}
    for event in log:
        match event["event"]:
            case "fetch_started":
                for partition in event["offsets"]:
                    reading[partition] = _Tenure(event["consumer"], event["mono_ms"])
                    tenures.setdefault(partition, []).append(reading[partition])
            case "fetch_stopped" | "fetch_lost" | "session_lost":
                for partition in event.get("offsets", event.get("partitions", ())):
                    if partition in reading:
                        reading.pop(partition).end_ms = event["mono_ms"]
    for tenure in reading.values():
        tenure.end_ms = gone_ms.get(tenure.consumer)
    return tenures


def percentiles(values: Iterable[int]) -> dict[str, int | None]:
    """`count`, and `p50`, `p99` and `max` by the nearest rank, None where there are no values.

    >>> percentiles([5, 1, 3])
    {'count': 3, 'p50': 3, 'p99': 5, 'max': 5}
    """
    ordered = sorted(values)
    found: dict[str, Any] = {"count": len(ordered)}
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        rank = -(-len(ordered) * percent // 100)
        found[name] = ordered[rank - 1] if ordered else None
    return found
