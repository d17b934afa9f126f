"""Removes everything of zkcoord from a tree, and says what prevents that."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace

from zkcoord.errors import CorruptError, UnavailableError, UsageError
from zkcoord.group_report import group_names
from zkcoord.migrate import BlockingTree, Mark, plan
from zkcoord.operating.releasing import named, offsets_elsewhere, ours, release, remove
from zkcoord.operating.requesting import read_record, who
from zkcoord.shell.ports import Outcome, refuse_without_right
from zkcoord.tree.paths import CANDIDATES, EPOCH, RECORDS, ROOT, SCHEMA, Layout
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import SetNode, Transaction

UNINSTALLED = "uninstalled"
"""The goal in the schema's migration mark while zkcoord is uninstalled. During a migration nobody is elected."""


def obstacles_of(tree: BlockingTree, schema: Schema | None) -> list[str]:
    """Return why the tree cannot be uninstalled now. Each sentence says who must act."""
    (listed,) = tree.read([Read(CANDIDATES, Kind.CHILDREN)])
    mark = None if schema is None else plan.read_mark(schema)
    found = []
    if mark is not None and mark.new != UNINSTALLED:
        found.append(f"the migration {mark.old} -> {mark.new} is in progress: end it with `zkcoord migrate upgrade`")
    if listed.children:
        found.append(f"{_coordinators(listed)} (a killed one goes with its session)")
    if schema is not None:
        layout = schema.place
        groups = _groups(tree, layout)
        there = {group: members for group in groups if (members := ours(tree, layout, group))}
        found += [f"group {group}: {named(members)}: stop them" for group, members in sorted(there.items())]
        found += [why for group in groups if (why := _offsets_elsewhere(tree, layout, group))]
    return found


def _groups(tree: BlockingTree, layout: Layout) -> Sequence[str]:
    """Return the groups that may have something of zkcoord's. Others belong to old consumers alone: this program may
    not even be allowed to read them."""
    if layout.channels is None:
        return group_names(tree, layout)
    records, channels = tree.read([Read(RECORDS, Kind.CHILDREN), Read(layout.channels, Kind.CHILDREN)])
    return sorted({*records.children, *channels.children})


def _offsets_elsewhere(tree: BlockingTree, layout: Layout, group: str) -> str:
    try:
        record = read_record(tree, layout, group)
    except CorruptError as error:
        return str(error)
    if record is None or (layout.adopts and record.adoption is None and record.moved is None):
        return ""  # it was never adopted, or a release of it broke off, which has looked
    why = offsets_elsewhere(group, record)
    return why and f"group {group}: {why}"


def take_away(tree: BlockingTree, schema: Schema | None, items_max: int | None = None) -> None:
    """Remove /zkcoord. While the schema exists, it has a mark, so that nobody is elected before the end.

    If a consumer of zkcoord joins or a coordinator starts meanwhile, the uninstallation breaks off: the schema is as
    before, and nothing of the consumer's group was removed. (Once all groups are released, a coordinator leaves the
    mark as it is.) Another run that sees such a consumer ends this run, too: its mark is gone, which is a
    UsageError here.
    """
    if schema is not None:
        _begin(tree, schema)
        layout = schema.place
        try:
            _refuse_coordinators(tree)
            for group in _groups(tree, layout) if layout.adopts else ():
                release(tree, layout, group, _refuse, items_max)
        except (UsageError, CorruptError):
            _give_up(tree)
            raise

    def refusal(node: Node) -> str:
        _refuse_coordinators(tree)
        return _given_up(node)

    remove(tree, [ROOT], SCHEMA, refusal, items_max)


def _coordinators(listed: Node) -> str:
    noun = "coordinator" if len(listed.children) == 1 else "coordinators"
    return f"{noun} {', '.join(listed.children)}: stop them"


def _refuse_coordinators(tree: BlockingTree) -> None:
    """Raise UsageError for a coordinator that was started meanwhile: it would make a new tree at the end."""
    (listed,) = tree.read([Read(CANDIDATES, Kind.CHILDREN)])
    if listed.children:
        raise UsageError(f"not all was removed: {_coordinators(listed)}, and run it again")


def _refuse(there: Sequence[str]) -> None:
    raise UsageError(f"not all was removed: {named(there)}: stop them, and run it again")


def _uninstalls(node: Node) -> bool:
    """Return True for a schema whose mark says that the tree is being uninstalled."""
    schema = plan.read_schema(node)
    mark = None if schema is None else plan.read_mark(schema)
    return mark is not None and mark.new == UNINSTALLED


def _given_up(node: Node) -> str:
    """Say why the tree stays; "": its schema says that it is being uninstalled."""
    return "" if _uninstalls(node) else "somebody gave the uninstallation up meanwhile: run it again"


def _begin(tree: BlockingTree, schema: Schema) -> None:
    node, epoch = tree.read([Read(SCHEMA), Read(EPOCH)])
    # another run has ended meanwhile, or one broke off near its end: without an epoch nobody is elected
    if not node.exists or (_uninstalls(node) and not epoch.exists):
        return
    run = f"{who()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _write(tree, plan.begin(node, epoch, Mark(old=schema.revision, new=UNINSTALLED, run=run)))


def _give_up(tree: BlockingTree) -> None:
    (node,) = tree.read([Read(SCHEMA)])
    schema = plan.read_schema(node)
    if schema is not None and node.stat is not None and _uninstalls(node):
        back = SetNode(SCHEMA, encode_schema(replace(schema, migration=None)), node.stat.version)
        _write(tree, Transaction(writes=(back,), why="the uninstallation was given up"))


def _write(tree: BlockingTree, transaction: Transaction) -> None:
    done = tree.commit(transaction)
    if done.outcome is Outcome.COMMITTED:
        return
    refuse_without_right(done, SCHEMA)
    raise UnavailableError(f"{SCHEMA}: `{transaction.why}` was not carried out ({done.reason}): run it again")
