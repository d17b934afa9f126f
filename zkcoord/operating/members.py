"""The members of a group and their outstanding commands, as documents for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zkcoord.core.model import consumer_of
from zkcoord.core.view import QueuedCommand
from zkcoord.group_report import GroupReport, TreeReport
from zkcoord.migrate import BlockingTree
from zkcoord.operating.waiting import waits_for
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Read


class Outstanding(NamedTuple):
    """A command that its consumer has not acknowledged. `written_ms`: when it was written, by the server's wall
    clock."""

    written_ms: int
    group: str
    consumer: str
    command: QueuedCommand


def members_of(report: GroupReport) -> list[dict[str, Any]]:
    """Return all members, sorted by consumer id."""
    owned: dict[str, list[str]] = {}
    for partition, owner in sorted(report.view.owners.items()):
        owned.setdefault(consumer_of(owner.thread), []).append(str(partition))
    return [_member(report, name, owned.get(name, [])) for name in sorted(report.view.members)]


def _member(report: GroupReport, name: str, partitions: list[str]) -> dict[str, Any]:
    view = report.view
    member, channel = view.members[name], view.channels.get(name)
    draft_only = channel is not None and not member.speaks_protocol
    notes = [
        "knows only the draft" if draft_only else None,
        "no topic matches its wildcard" if member.wildcard is not None and not member.threads else None,
        report.idle.get(name),
    ]
    return {
        "consumer": name,
        "instance": member.instance,
        "topics": dict(sorted(member.threads.items())),
        "partitions": partitions,
        "commands": [
            {
                "sequence": c.sequence,
                "option": c.option,
                "partitions": None if c.threads is None else sorted(map(str, c.threads)),
            }
            for c in (channel.commands if channel else ())
        ],
        "note": "; ".join(filter(None, notes)) or None,
    }


def member_documents(above: TreeReport, report: GroupReport, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all members, sorted by consumer id; after them the static members that are away. `rows`: from
    `partitions_of`."""
    lags: dict[str, int] = {}
    for row in rows:
        if row["lag"] is not None and row["consumer"] is not None:
            lags[row["consumer"]] = lags.get(row["consumer"], 0) + row["lag"]
    found = []
    for each in members_of(report):
        member = report.view.members[each["consumer"]]
        found.append(
            {
                **each,
                "lag": lags.get(member.consumer_id),
                "away": False,
                "session_timeout_ms": member.session_timeout_ms,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "hold_ms": member.hold_ms,
                "assignors": list(member.assignors),
                "rack": member.rack,
                "capacity": member.capacity,
            }
        )
    return found + [_away(above, report, instance) for instance in report.awaited]


def _away(above: TreeReport, report: GroupReport, instance: str) -> dict[str, Any]:
    awaited, known = report.awaited[instance], report.view.instances[instance]
    return {
        "consumer": awaited.consumer,
        "instance": instance,
        "topics": dict(sorted(known.threads.items())),
        "partitions": [str(partition) for partition in awaited.partitions],
        "commands": [],
        "note": f"away: {waits_for(above, awaited)}",
        "lag": None,
        "away": True,
        "session_timeout_ms": None,
        "rebalance_timeout_ms": None,
        "hold_ms": awaited.hold_ms,
        "assignors": [],
        "rack": known.rack,
        "capacity": known.capacity,
    }


def outstanding(tree: BlockingTree, layout: Layout, reports: Sequence[GroupReport]) -> list[Outstanding]:
    """Return the outstanding commands of these groups, oldest first, without those that were acknowledged since."""
    listed = [
        (report.view.group, consumer, command)
        for report in reports
        for consumer, channel in sorted(report.view.channels.items())
        for command in channel.commands
    ]
    reads = [Read(f"{layout.channel(group, consumer)}/{command.sequence}") for group, consumer, command in listed]
    nodes = tree.read(reads) if reads else ()
    found = [
        Outstanding(node.stat.mtime_ms, *each)
        for node, each in zip(nodes, listed, strict=True)
        if node.stat is not None
    ]
    return sorted(found, key=lambda each: (each.written_ms, each.group, each.consumer, each.command.sequence))


def command_document(outstanding: Outstanding, now_ms: int) -> dict[str, Any]:
    """Return the command as a document for programs. `now_ms`: this machine's wall clock."""
    command = outstanding.command
    return {
        "group": outstanding.group,
        "consumer": outstanding.consumer,
        "sequence": command.sequence,
        "option": command.option,
        "partitions": None if command.threads is None else sorted(map(str, command.threads)),
        "generation": command.generation,
        "written_ms": outstanding.written_ms,
        "age_ms": max(0, now_ms - outstanding.written_ms),
        "refused": command.error,
    }
