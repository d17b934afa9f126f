"""The migration's result as JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from zkcoord.demo.migration.play import MigrationResult

FIRST, WIDE = 34, 12  # widths of the first column and of the others


def as_json(result: MigrationResult) -> dict[str, Any]:
    """The result for programs."""
    phases = [asdict(each) for each in result.phases]
    in_kafka = {str(partition): offset for partition, offset in sorted(result.in_kafka.items())}
    return {"ok": result.fine, "records": asdict(result.counted), "in_kafka": in_kafka, "phases": phases}


def as_table(result: MigrationResult) -> str:
    """The result for people."""
    counted = result.counted
    rows = [
        ("produced", counted.produced, ""),
        ("processed", counted.processed, "different records, by old consumers, zkcoord's, and PySpark"),
        ("lost", counted.lost, ""),
        ("twice, by a kill", counted.by_kill, "what the killed consumer had not committed"),
        ("twice, by an old consumer", counted.by_old, "each time, a record that its program had in hand"),
        ("twice, unexplained", counted.unexplained, ""),
        (
            "committed, says Kafka 3.9",
            sum(result.in_kafka.values()),
            "the offsets that kafka-consumer-groups shows",
        ),
    ]
    lines = ["RECORDS", *(f"{name:<{FIRST}}{size:>{WIDE},}   {note}".rstrip() for name, size, note in rows)]
    lines += ["", f"{'PHASE':<{FIRST}}{'TOOK':>{WIDE}}{'RECORDS':>{WIDE}}   KILLED"]
    for each in result.phases:
        took = f"{each.took_ms / 1000:.1f} s"
        lines.append(f"{each.name:<{FIRST}}{took:>{WIDE}}{each.records:>{WIDE},}   {', '.join(each.killed)}".rstrip())
    return "\n".join([*lines, "", _verdict(result)])


def _verdict(result: MigrationResult) -> str:
    counted = result.counted
    if result.fine:
        return "Each record was processed. What was processed twice is explained by a kill, or by an old consumer."
    if counted.fine:
        return f"FAILED: the offsets in Kafka are {dict(result.in_kafka)}, and the logs end at {dict(result.ends)}"
    return f"FAILED: {counted.lost:,} records lost, {counted.unexplained:,} processed twice without a reason"
