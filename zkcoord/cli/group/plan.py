"""`zkcoord group plan`: what a rebalance would move, or which assignment old members would reach."""

from __future__ import annotations

import sys
from itertools import starmap
from pathlib import Path
from typing import Any

import click

from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json, print_json_list, table
from zkcoord.errors import UsageError
from zkcoord.group_report import read_group, read_tree
from zkcoord.legacy.cases import Case, read_cases
from zkcoord.legacy.planning import ROUND_ROBIN, Plan, plan_of
from zkcoord.operating.what_if import Change, moves_if
from zkcoord.operating.words import cell

PLAN_COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO")
OWNER_COLUMNS = ("TOPIC", "PARTITION", "THREAD")


@click.command(cls=Command, example="zkcoord group plan etl --add-member 2 --partitions clicks=12")
@click.argument("name", metavar="[G]", required=False)
@click.option(
    "--dump", metavar="FILE", help="Plan the groups in this file instead, without any server (-: standard input)."
)
@number_option("--add-member", "added", default=0, text="Assume that N more members join, like the youngest one.")
@click.option(
    "--remove-member", "removed", multiple=True, metavar="C", help="Assume that member C leaves; may be repeated."
)
@click.option(
    "--partitions", "grown", multiple=True, metavar="T=N", help="Assume that topic T has N partitions; may be repeated."
)
@click.option("--assignor", metavar="A", help="Assume that the group uses assignor A.")
@pass_settings
def plan(
    settings: Settings,
    name: str | None,
    dump: str | None,
    added: int,
    removed: tuple[str, ...],
    grown: tuple[str, ...],
    assignor: str | None,
) -> None:
    """Show what a rebalance of group G would move now, or after a change that you assume. Writes nothing.

    With --dump it shows which assignment old ZooKeeper consumers would reach, or why they would reach none. The file
    holds one group or a list of groups, as JSON (docs/commands.md). --output json prints an object for a group, and a
    list for a list.
    """
    if name is None and dump is None:
        raise UsageError("name a group, or give --dump FILE")
    if name is not None and dump is not None:
        raise UsageError(f"group {name} and --dump {dump} were both given: the file names its groups; leave one out")
    change = Change(added=added, removed=removed, partitions=_numbers(grown), assignor=assignor)
    if dump is not None:
        if change != Change():
            raise UsageError("--add-member, --remove-member, --partitions and --assignor are about a group: name it")
        _plan_file(settings, dump)
    elif name is not None:
        _plan_group(settings, name, change)


def _numbers(given: tuple[str, ...]) -> dict[str, int]:
    """Return topic -> number of partitions."""
    found = {}
    for text in given:
        topic, equals, number = text.rpartition("=")
        if not equals or not topic or not number.isascii() or not number.isdigit():
            raise UsageError(f"--partitions {text}: write TOPIC=NUMBER")
        found[topic] = int(number)
    return found


def _plan_group(settings: Settings, name: str, change: Change) -> None:
    with settings.tree() as tree:
        report = read_group(tree, read_tree(tree, settings.zookeeper_address()).layout, name)
    moves = report.moves() if change == Change() else moves_if(report.view, change)
    if settings.json:
        print_json(
            {"group": name, "moves": [{"partition": str(p), "from": old or None, "to": new} for p, old, new in moves]}
        )
    elif moves:
        rows = [[p.topic, p.partition, old, new] for p, old, new in moves]
        click.echo(table(PLAN_COLUMNS, rows, ["PARTITION"]))
    else:
        click.echo(f"group {name}: nothing would move")


def _plan_file(settings: Settings, name: str) -> None:
    data = _bytes(name)
    try:
        cases = read_cases(_text(data))
    except UsageError as error:
        raise UsageError(f"--dump {name}: {error}; whoever wrote the file must mend it") from None
    found = [(case, plan_of(case.group)) for case in ([cases] if isinstance(cases, Case) else cases)]
    if not settings.json:
        click.echo("\n\n".join(starmap(_text_of, found)))
    elif isinstance(cases, Case):
        print_json(_document(*found[0]))
    else:
        print_json_list(starmap(_document, found))


def _bytes(name: str) -> bytes:
    """Return the file's bytes. Raise UsageError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        told = f"it cannot be read ({error.strerror or error}); name a file that can be read"
        raise UsageError(f"--dump {name}: {told}") from None


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start} is no UTF-8") from None


def _document(case: Case, found: Plan) -> dict[str, Any]:
    named = {} if case.name is None else {"name": case.name}
    if found.owners is None:
        return {**named, "error": found.error}
    owners: dict[str, dict[str, str]] = {}
    for partition, thread in sorted(found.owners.items()):
        owners.setdefault(partition.topic, {})[str(partition.partition)] = thread
    return {**named, "owners": owners}


def _text_of(case: Case, found: Plan) -> str:
    group = case.group
    strategy = "round robin" if group.assignor == ROUND_ROBIN else group.assignor
    title = cell(f"{case.title} ({strategy}, read by Kafka {group.version.text})")
    if found.owners is None:
        return f"{title}: NO PLAN: {cell(found.error)}"
    rows = [[partition.topic, partition.partition, thread] for partition, thread in sorted(found.owners.items())]
    return f"{title}:\n{table(OWNER_COLUMNS, rows)}" if rows else f"{title}: nothing is assigned"
