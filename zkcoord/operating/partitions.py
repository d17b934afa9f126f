"""The partitions of a group: who owns each, and how far behind it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.group_report import GroupReport
from zkcoord.kafka.lag import lag

Ends = Mapping[TopicPartition, int]
"""The end of each partition's log."""


def partitions_of(report: GroupReport, ends: Ends) -> list[dict[str, Any]]:
    rows = []
    offsets = {partition: report.offsets.get(partition) for partition in report.partitions()}
    for partition, behind in lag(offsets, ends).items():
        owner = report.view.owners.get(partition)
        consumer = consumer_of(owner.thread) if owner and owner.thread else None
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": offsets[partition],
                "log_end_offset": ends.get(partition),
                "lag": behind,
                "owner": owner.thread if owner and owner.thread else None,
                "consumer": consumer,
                "alive": consumer in report.view.members,
            }
        )
    return rows


def owner_of(row: Mapping[str, Any]) -> str | None:
    """Return a partition's owner for people, with " (gone)" if it is dead."""
    return None if row["owner"] is None else row["owner"] + ("" if row["alive"] else " (gone)")


def lag_of(report: GroupReport, ends: Ends) -> int | None:
    """Return the sum of all known lags of the group's partitions; None if no lag is known."""
    known = [row["lag"] for row in partitions_of(report, ends) if row["lag"] is not None]
    return sum(known) if known else None
