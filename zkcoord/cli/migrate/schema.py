"""`zkcoord migrate`: the schema of the tree."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import click

from zkcoord.cli.files import opened
from zkcoord.cli.loading import OF_MIGRATE, Commands
from zkcoord.cli.migrate.topics import topics_command
from zkcoord.cli.options import Group, Settings, pass_settings
from zkcoord.cli.output import print_json, show, tell
from zkcoord.errors import SchemaError, UsageError
from zkcoord.group_report import refuse_newer
from zkcoord.migrate import (
    HEAD,
    BlockingTree,
    Dump,
    Rehearsal,
    Report,
    checkout_folder,
    current,
    downgrade,
    history,
    read_mark,
    served,
    stamp,
    template,
    upgrade,
)
from zkcoord.offsets import backup_file
from zkcoord.operating.requesting import who
from zkcoord.tree.paths import FROM_ZOOKEEPER, KAFKA, LAYOUTS
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write


@click.group(cls=Group, commands=Commands(OF_MIGRATE), example="zkcoord migrate current")
def migrate() -> None:
    """Show or change the revision of the tree's schema, or move groups to another tree."""


@migrate.command(name="current", example="zkcoord migrate current --check")
@click.option("--check", is_flag=True, help="Exit code 7 unless this program serves the tree.")
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
                "tree_id": schema and schema.tree_id,
                "topics": schema and schema.topics,
                "cluster_id": schema and schema.cluster_id,
                "head": head,
                "migration": mark and mark.document(),
            }
        )
    elif schema is None:
        click.echo("no zkcoord tree yet")
    else:
        source = f", topics from {schema.topics}" if schema.topics != FROM_ZOOKEEPER else ""
        click.echo(f"{schema.revision}{' (head)' if schema.revision == head else ''}, layout {schema.layout}{source}")
        if mark is not None:
            click.echo(f"in progress: {mark.old} -> {mark.new}, run {mark.run}")
    if check and schema is not None:
        refuse_newer(schema)
    if check and (schema is None or mark is not None or schema.revision not in served()):
        raise SchemaError(f"the tree is not at revision {' or '.join(served())}: run `zkcoord migrate upgrade`")


@migrate.command(name="history", example="zkcoord migrate history")
@pass_settings
def history_(settings: Settings) -> None:
    """List the revisions that this program knows, newest first."""
    known = history()
    head = known[-1].revision
    documents = [{"revision": r.revision, "down_revision": r.down_revision, "title": r.title} for r in reversed(known)]
    rows = [[r.revision + (" (head)" if r.revision == head else ""), r.title] for r in reversed(known)]
    show(settings, documents, ["REVISION", "WHAT"], rows)


def _changing(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the common options of the commands that write."""
    dump = "Read the tree from this backup, not from a server. Only print the operations (with version 0)."
    command = click.option("--dump", metavar="FILE", help=dump)(command)
    return click.option("--dry-run", is_flag=True, help="Print the operations, carry none out.")(command)


@migrate.command(name="upgrade", example="zkcoord migrate upgrade --dry-run")
@click.argument("goal", default=HEAD)
@click.option("--layout", type=click.Choice(list(LAYOUTS)), help="Where the nodes of a new tree are (default: draft).")
@_changing
@pass_settings
def upgrade_(settings: Settings, goal: str, layout: str | None, dry_run: bool, dump: str | None) -> None:
    """Bring the tree to revision GOAL (default: head), and finish a migration that broke off."""
    with _tree(settings, dry_run, dump) as (tree, report):
        taken = upgrade(tree, goal=goal, layout=layout, run_id=_run_id(), report=report)
    _nothing_to_do(settings, bool(taken))


@migrate.command(name="downgrade", example="zkcoord migrate downgrade 0001 --dry-run")
@click.argument("goal")
@_changing
@pass_settings
def downgrade_(settings: Settings, goal: str, dry_run: bool, dump: str | None) -> None:
    """Bring the tree back to revision GOAL, before an earlier release is deployed.

    A migration that broke off is finished first, in its own direction. To give the tree up, see `zkcoord uninstall`.
    """
    with _tree(settings, dry_run, dump) as (tree, report):
        taken = downgrade(tree, goal=goal, run_id=_run_id(), report=report)
    _nothing_to_do(settings, bool(taken))


@migrate.command(name="stamp", example="zkcoord migrate stamp 0002 --dry-run")
@click.argument("goal")
@_changing
@pass_settings
def stamp_(settings: Settings, goal: str, dry_run: bool, dump: str | None) -> None:
    """Write that the tree is at revision GOAL, but carry out no migration.

    For an operator who has mended the tree by hand. A migration in progress is given up. Programs rely on the revision
    that is written there.
    """
    with _tree(settings, dry_run, dump) as (tree, report):
        done = stamp(tree, goal=goal, report=report)
    _nothing_to_do(settings, done)


@migrate.command(name="new", example='zkcoord migrate new "Keep marks apart"')
@click.argument("name")
@click.option("--folder", metavar="FOLDER", help="The folder of revisions (default: this checkout's).")
@click.option("--dry-run", is_flag=True, help="Print the file, do not write it.")
@pass_settings
def new_(settings: Settings, name: str, folder: str | None, dry_run: bool) -> None:
    """Write the file of a new revision NAME, which changes nothing yet, for developers of zkcoord."""
    place = Path(folder) if folder is not None else checkout_folder()
    if place is None:
        raise UsageError("zkcoord is installed, and no checkout: give --folder FOLDER with the revisions' files")
    if not place.is_dir():
        raise UsageError(f"{place} is no folder: name the one with the revisions' files")
    file, text = template(history(place), name)
    if dry_run:
        click.echo(text, nl=False)
        return
    path = place / file
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror or error})") from None
    tell(settings, {"file": str(path)}, str(path))


@contextmanager
def _tree(settings: Settings, dry_run: bool, dump: str | None) -> Iterator[tuple[BlockingTree, Report]]:
    """Yield the tree that a command changes, and the function that reports each batch. A dry run gets a rehearsal of
    the tree."""

    report = _report(settings, dry_run or dump is not None)
    if dump is not None:
        yield Rehearsal(_dumped(dump)), report
        return
    with settings.tree() as tree:
        yield Rehearsal(tree) if dry_run else tree, report


def _report(settings: Settings, shown: bool) -> Report:
    """Return the function that reports each batch. `shown`: it prints the operations, because they are not carried
    out."""

    def report(transaction: Transaction) -> None:
        if settings.json:
            print_json({"why": transaction.why, "dry_run": shown, "writes": [_document(w) for w in transaction.writes]})
        elif shown:
            click.echo("\n".join([f"# {transaction.why}", *(_words(write) for write in transaction.writes)]))
        else:
            click.echo(f"{transaction.why}: {len(transaction.writes)} operations")

    return report


def _dumped(name: str) -> Dump:
    with opened(name) as file:
        header = backup_file.check(file, name)
        brokers = () if header.revision else ((KAFKA, b""),)  # a tree of old consumers only: it has brokers
        return Dump(chain(brokers, backup_file.nodes(file)))


def _nothing_to_do(settings: Settings, done: bool) -> None:
    if not done and not settings.json:
        click.echo("nothing to do")


migrate.add_command(topics_command(_report))


def _run_id() -> str:
    """Return a unique id of this run, from which people see who runs it."""
    return f"{who()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _words(write: Write) -> str:
    """Describe a ZooKeeper operation for people.

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
