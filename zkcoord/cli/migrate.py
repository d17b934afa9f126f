"""`zkcoord migrate`: the tree's schema."""

from __future__ import annotations

import os
import uuid

import click

from zkcoord.cli.options import Group, Settings, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.cli.requesting import who
from zkcoord.errors import SchemaError
from zkcoord.group_report import refuse_newer
from zkcoord.migrate import HEAD, Rehearsal, current, history, read_mark, upgrade
from zkcoord.tree.paths import LAYOUTS
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write


@click.group(cls=Group)
def migrate() -> None:
    """The tree's schema: its revision, and the way to a newer one."""


@migrate.command(name="current")
@click.option("--check", is_flag=True, help="Exit code 7 unless the tree is at this program's revision.")
@pass_settings
def current_(settings: Settings, check: bool) -> None:
    """Show the tree's revision and layout, and a migration in progress."""
    head = history()[-1].revision
    with settings.tree() as tree:
        schema = current(tree)
    mark = None if schema is None else read_mark(schema)
    if settings.json:
        print_json(
            {
                "revision": schema and schema.revision,
                "layout": schema and schema.layout,
                "head": head,
                "migration": mark and mark.document(),
            }
        )
    elif schema is None:
        click.echo("no zkcoord tree yet")
    else:
        click.echo(f"{schema.revision}{' (head)' if schema.revision == head else ''}, layout {schema.layout}")
        if mark is not None:
            click.echo(f"in progress: {mark.old} -> {mark.new}, run {mark.run}")
    if check and schema is not None:
        refuse_newer(schema)
    if check and (schema is None or mark is not None or schema.revision != head):
        raise SchemaError(f"the tree is not at revision {head}: run `zkcoord migrate upgrade`")


@migrate.command(name="history")
@pass_settings
def history_(settings: Settings) -> None:
    """List the revisions that this program knows, newest first."""
    known = history()
    head = known[-1].revision
    if settings.json:
        for revision in reversed(known):
            print_json(
                {"revision": revision.revision, "down_revision": revision.down_revision, "title": revision.title}
            )
        return
    rows = [[r.revision + (" (head)" if r.revision == head else ""), r.title] for r in reversed(known)]
    click.echo(table(["REVISION", "WHAT"], rows))


@migrate.command(name="upgrade")
@click.argument("goal", default=HEAD)
@click.option("--layout", type=click.Choice(list(LAYOUTS)), help="Where the nodes of a new tree are (default: draft).")
@click.option("--dry-run", is_flag=True, help="Print the operations, carry none out.")
@pass_settings
def upgrade_(settings: Settings, goal: str, layout: str | None, dry_run: bool) -> None:
    """Bring the tree to revision GOAL (default: head); finishes a migration that broke off."""

    def report(transaction: Transaction) -> None:
        if settings.json:
            print_json(
                {"why": transaction.why, "dry_run": dry_run, "writes": [_document(w) for w in transaction.writes]}
            )
        elif dry_run:
            click.echo("\n".join([f"# {transaction.why}", *(_words(write) for write in transaction.writes)]))
        else:
            click.echo(f"{transaction.why}: {len(transaction.writes)} operations")

    with settings.tree() as tree:
        taken = upgrade(Rehearsal(tree) if dry_run else tree, goal=goal, layout=layout, run_id=_run_id(), report=report)
    if not taken and not settings.json:
        click.echo("nothing to do")


def _run_id() -> str:
    """Return an id of this run alone, which tells people who runs it."""
    return f"{who()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _words(write: Write) -> str:
    """Describe a znode operation to people.

    >>> _words(SetNode("/zkcoord/epoch", b"4", 3))
    'set    /zkcoord/epoch if version 3: 4'
    """
    match write:
        case CreateNode(path, data):
            return f"create {path}" + (f": {_text(data)}" if data else "")
        case SetNode(path, data, version):
            return f"set    {path} if version {version}: {_text(data)}"
        case DeleteNode(path, version):
            return f"delete {path} if version {version}"
        case CheckNode(path, version):
            return f"check  {path} has version {version}"


def _document(write: Write) -> dict[str, object]:
    name = {CreateNode: "create", SetNode: "set", DeleteNode: "delete", CheckNode: "check"}[type(write)]
    document: dict[str, object] = {"operation": name, "path": write.path}
    if not isinstance(write, CreateNode):
        document["version"] = write.version
    if isinstance(write, CreateNode | SetNode):
        document["data"] = _text(write.data)
    return document


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
