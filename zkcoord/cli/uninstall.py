"""`zkcoord uninstall`: takes all that is zkcoord's own out of the tree. Groups of old consumers stay as they are."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import click

from zkcoord.cli.group_adopt import named
from zkcoord.cli.group_waiting import count
from zkcoord.cli.options import Command, Settings, pass_settings
from zkcoord.cli.output import print_json, say, table, warn
from zkcoord.cli.releasing import below, offsets_elsewhere, ours, release, remove
from zkcoord.cli.requesting import read_record, who
from zkcoord.errors import CorruptError, UnavailableError, UsageError, ZkcoordError
from zkcoord.migrate import BlockingTree, Mark, current, plan
from zkcoord.shell.ports import Outcome
from zkcoord.tree.paths import CANDIDATES, EPOCH, RECORDS, ROOT, SCHEMA, Layout
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import SetNode, Transaction

UNINSTALLED = "uninstalled"
"""Stands in the schema as the goal of the migration that an uninstallation is: nobody is elected meanwhile."""

COLUMNS = ("PATH", "NODES")


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and what prevents it; remove nothing.")
@pass_settings
def uninstall(settings: Settings, dry_run: bool) -> None:
    """Remove all that is zkcoord's own from the tree: /zkcoord, and with it every adoption and decision.

    First stop all coordinators and all consumers of zkcoord: it is refused while one is there. What stands below
    /consumers stays as it is, offsets too. May be run again when it broke off.
    """
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        found = below(tree, [ROOT])
        if not found:
            raise UsageError(f"there is nothing of zkcoord at {address}")
        schema = current(tree)
        places = Counter("/".join(path.split("/")[:3]) for path, _ in found)
        obstacles = obstacles_of(tree, schema)
        if not dry_run:
            if obstacles:
                raise UsageError(f"nothing was removed: {'; '.join(obstacles)}")
            take_away(tree, schema)
    if settings.json:
        print_json({"removed": dict(sorted(places.items())), "obstacles": obstacles, "dry_run": dry_run})
        return
    click.echo(table(COLUMNS, sorted(places.items())))
    for obstacle in obstacles:
        warn(obstacle)
    if dry_run:
        say("notice", f"nothing was removed: --dry-run; it would be {count(len(found), 'node')}")


def obstacles_of(tree: BlockingTree, schema: Schema | None) -> list[str]:
    """Return why the tree cannot be given up now: each a sentence that says who must act."""
    (listed,) = tree.read([Read(CANDIDATES, Kind.CHILDREN)])
    mark = None if schema is None else plan.read_mark(schema)
    found = []
    if mark is not None and mark.new != UNINSTALLED:
        found.append(f"the migration {mark.old} -> {mark.new} is in progress: end it with `zkcoord migrate upgrade`")
    if listed.children:
        noun = "coordinator" if len(listed.children) == 1 else "coordinators"
        found.append(f"{noun} {', '.join(listed.children)}: stop them (a killed one goes with its session)")
    if schema is not None:
        layout = schema.place
        there = {group: members for group in _groups(tree, layout) if (members := ours(tree, layout, group))}
        found += [f"group {group}: {named(members)}: stop them" for group, members in sorted(there.items())]
        found += [why for group in _groups(tree, layout) if (why := _offsets_elsewhere(tree, layout, group))]
    return found


def _offsets_elsewhere(tree: BlockingTree, layout: Layout, group: str) -> str:
    try:
        record = read_record(tree, layout, group)
    except CorruptError as error:
        return str(error)
    why = "" if record is None else offsets_elsewhere(group, record)
    return why and f"group {group}: {why}"


def _groups(tree: BlockingTree, layout: Layout) -> Sequence[str]:
    lists = tree.read([Read(RECORDS, Kind.CHILDREN), Read(layout.groups, Kind.CHILDREN)])
    return sorted({name for node in lists for name in node.children})


def take_away(tree: BlockingTree, schema: Schema | None) -> None:
    """Remove /zkcoord. As long as the schema stands, it says that this goes on: nobody is elected before the end.

    A consumer of ours that comes in between has it broken off: then the schema is as before, and nothing of the group
    that it joined was removed.
    """
    if schema is not None:
        _begin(tree, schema)
        layout = schema.place
        try:
            for group in _groups(tree, layout) if layout.adopts else ():
                release(tree, layout, group, _refuse)
        except UsageError:
            _give_up(tree)
            raise
    remove(tree, [ROOT], SCHEMA)


def _refuse(there: Sequence[str]) -> None:
    raise UsageError(f"not all was removed: {named(there)}: stop them, and run it again")


def _begin(tree: BlockingTree, schema: Schema) -> None:
    node, epoch = tree.read([Read(SCHEMA), Read(EPOCH)])
    run = f"{who()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _write(tree, plan.begin(node, epoch, Mark(old=schema.revision, new=UNINSTALLED, run=run)))


def _give_up(tree: BlockingTree) -> None:
    (node,) = tree.read([Read(SCHEMA)])
    schema = plan.read_schema(node)
    if schema is not None and node.stat is not None:
        back = SetNode(SCHEMA, encode_schema(replace(schema, migration=None)), node.stat.version)
        _write(tree, Transaction(writes=(back,), why="the uninstallation was given up"))


def _write(tree: BlockingTree, transaction: Transaction) -> None:
    done = tree.commit(transaction)
    if done.outcome is Outcome.COMMITTED:
        return
    if done.reason == "NoAuth":
        error: ZkcoordError = UsageError(f"{SCHEMA}: no right to write there; log in as who may (--zookeeper-config)")
    else:
        error = UnavailableError(f"{SCHEMA}: `{transaction.why}` was not carried out ({done.reason}): run it again")
    raise error
