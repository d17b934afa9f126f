"""`zkcoord group members` and `zkcoord group commands`: the members of a group, and its outstanding commands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from zkcoord.cli.kafka_options import with_kafka
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import show
from zkcoord.group_report import read_group, read_tree
from zkcoord.operating.groups import present_groups, reports_of
from zkcoord.operating.members import command_document, member_documents, outstanding
from zkcoord.operating.partitions import partitions_of
from zkcoord.operating.saying import Tone

MEMBER_COLUMNS = ("CONSUMER-ID", "INSTANCE", "#PARTITIONS", "#COMMANDS", "LAG", "TOPICS", "NOTE")
COMMAND_COLUMNS = ("GROUP", "AGE-MS", "CONSUMER-ID", "SEQUENCE", "OPTION", "#PARTITIONS", "GENERATION", "REFUSED")
NUMBERS = ("#PARTITIONS", "#COMMANDS", "LAG", "AGE-MS", "GENERATION")


@click.command(cls=Command, example="zkcoord group members etl")
@click.argument("name", metavar="G")
@pass_settings
def members(settings: Settings, name: str) -> None:
    """Show the members of group G, also static members that are away.

    LAG is the sum over the partitions that a member owns; it needs --bootstrap-servers.
    """
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        (report,), ends = with_kafka(settings, tree, above.layout, [read_group(tree, above.layout, name)])
    found = member_documents(above, report, partitions_of(report, ends))
    nothing = f"group {name} has no members: start its consumers"
    tones = list(map(member_tone, found))
    show(settings, found, MEMBER_COLUMNS, list(map(member_row, found)), NUMBERS, tones=tones, nothing=nothing)


def member_tone(member: Mapping[str, Any]) -> Tone | None:
    """Return MOVING if the member is away, or has outstanding commands."""
    return Tone.MOVING if member["away"] or member["commands"] else None


def member_row(member: Mapping[str, Any]) -> list[Any]:
    """Return the member as a row of MEMBER_COLUMNS."""
    return [
        member["consumer"] + (" (gone)" if member["away"] else ""),
        member["instance"],
        len(member["partitions"]),
        len(member["commands"]),
        member["lag"],
        ",".join(f"{topic}:{threads}" for topic, threads in member["topics"].items()),
        member["note"],
    ]


@click.command(cls=Command, example="zkcoord group commands etl")
@click.argument("name", metavar="[G]", required=False)
@pass_settings
def commands(settings: Settings, name: str | None) -> None:
    """Show outstanding commands, oldest first: of group G, or of all groups.

    A command is outstanding until its consumer has obeyed and acknowledged it. AGE-MS compares this machine's clock
    with that of ZooKeeper's server. If the consumer refused the command, AGE-MS counts from the refusal.
    """
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        names = [name] if name else present_groups(tree, above.layout)
        reports = reports_of(tree, above.layout, names)
        found = outstanding(tree, above.layout, reports)
    now_ms = time.time_ns() // 1_000_000
    documents = [command_document(each, now_ms) for each in found]
    tones = [Tone.BAD if each["refused"] else None for each in documents]
    nothing = f"{f'group {name}' if name else 'no group'} has {'no ' if name else ''}outstanding commands"
    header = COMMAND_COLUMNS[1:] if name else COMMAND_COLUMNS
    rows = [_command_row(each)[-len(header) :] for each in documents]
    show(settings, documents, header, rows, NUMBERS, tones=tones, nothing=nothing)


def _command_row(command: Mapping[str, Any]) -> list[Any]:
    keys = ("group", "age_ms", "consumer", "sequence", "option")
    partitions = "all" if command["partitions"] is None else len(command["partitions"])
    return [*(command[key] for key in keys), partitions, command["generation"], command["refused"]]
