"""The demo's result as a value, as JSON, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zkcoord import settings
from zkcoord.demo.accounting import Records, Unowned, percentiles
from zkcoord.demo.options import SESSION_TIMEOUT_MS

FIRST, WIDE = 30, 14  # widths of the first column and of the others
NOTE = (
    f"DETECTED: what was killed is noticed when its session ends, {SESSION_TIMEOUT_MS // 1000} s (consumers) or "
    f"{settings.SESSION_TIMEOUT_MS // 1000} s (coordinators) after its",
    "last sign of life; what a killed consumer read counts as unowned from then on. A stop waits for the batch that",
    "runs: that is most of the time until a group with a new consumer is stable, and nothing is unowned meanwhile.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event. Times are of the machine's monotonic clock.

    `known_ms`: when the event was visible in ZooKeeper (a registration was there, or a node was gone). For a process
    that was killed this is one session timeout after `began_ms`. `stable_ms`: when the coordinator saw the group stable
    again.
    """

    name: str
    began_ms: int
    known_ms: int
    stable_ms: int
    moved: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that the demo reports at its end."""

    records: Records
    flow_ms: int
    happenings: Sequence[Happening]
    unowned: Sequence[Unowned]

    @property
    def fine(self) -> bool:
        """True when the demo shows what it promises."""
        return self.records.fine

    def during(self, happening: Happening) -> list[Unowned]:
        """The times without an owner that began between this event and the stable group after it."""
        return [each for each in self.unowned if happening.began_ms <= each.from_ms <= happening.stable_ms]


def as_json(result: Result) -> dict[str, Any]:
    """The result for programs."""
    return {
        "ok": result.fine,
        "records": asdict(result.records),
        "flow_ms": result.flow_ms,
        "events": [
            {
                "event": each.name,
                "detection_ms": each.known_ms - each.began_ms,
                "stable_ms": each.stable_ms - each.known_ms,
                "moved": each.moved,
                "unowned_ms": percentiles(span.ms for span in result.during(each)),
                "note": each.note,
            }
            for each in result.happenings
        ],
        "unowned_ms": percentiles(each.ms for each in result.unowned),
    }


def as_table(result: Result) -> str:
    """The result for people."""
    parts = (_records(result), _events(result), _unowned(result), NOTE, [_verdict(result.records)])
    return "\n\n".join("\n".join(line.rstrip() for line in part) for part in parts)


def _records(result: Result) -> list[str]:
    records = result.records
    rate = records.produced * 1000 // max(1, result.flow_ms)
    rows = [
        ("produced", records.produced, f"{rate:,} a second"),
        ("processed", records.processed, "rows in the Parquet files"),
        ("lost", records.lost, ""),
        ("duplicated", records.duplicated, f"the kill interrupted a batch of {records.interrupted:,}: it was replayed"),
    ]
    return [f"{'RECORDS':<{FIRST}}", *(f"{name:<{FIRST}}{count:>{WIDE},}   {note}" for name, count, note in rows)]


def _events(result: Result) -> list[str]:
    lines = [_row("EVENT", "DETECTED", "THEN STABLE", "MOVED", "UNOWNED MAX")]
    for each in result.happenings:
        longest = percentiles(span.ms for span in result.during(each))["max"]
        found, stable = _ms(each.known_ms - each.began_ms or None), _ms(each.stable_ms - each.known_ms)
        lines.append(f"{_row(each.name, found, stable, str(each.moved), _ms(longest))}   {each.note}")
    return lines


def _unowned(result: Result) -> list[str]:
    total = percentiles(each.ms for each in result.unowned)
    times = [_ms(total[name]) for name in ("p50", "p99", "max")]
    return [
        _row("UNOWNED TIME", "MOVES", "P50", "P99", "MAX"),
        _row("of each partition that moved", str(total["count"]), *times),
    ]


def _verdict(records: Records) -> str:
    if records.fine:
        return "Each record is there once: nothing is lost, nothing is there twice."
    wrong = {
        "lost": records.lost,
        "there twice": records.duplicated,
        "in a wrong file, or produced by nobody": records.foreign,
    }
    return "FAILED: records " + "; ".join(f"{what}: {count:,}" for what, count in wrong.items() if count)


def _row(first: str, *others: str) -> str:
    return f"{first:<{FIRST}}" + "".join(f"{each:>{WIDE}}" for each in others)


def _ms(value: int | None) -> str:
    return "-" if value is None else f"{value:,} ms"
