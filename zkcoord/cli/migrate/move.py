"""`zkcoord migrate move`: moves groups to another chroot, layout or ensemble."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from zkcoord.cli.kafka_options import kafka_beside
from zkcoord.cli.migrate.topics import AFTER
from zkcoord.cli.options import Command, Settings, at_least, number_option, pass_settings
from zkcoord.cli.output import print_json, table
from zkcoord.core.moved import MoveState
from zkcoord.core.record import Request
from zkcoord.errors import SchemaError, UsageError, ZkcoordError
from zkcoord.group_report import group_names, may_name_a_group, no_such_group, refuse_newer
from zkcoord.migrate import BlockingTree, Rehearsal, current, read_mark, upgrade
from zkcoord.migrate.plan import KAFKA_TOPICS_SINCE
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.move import GroupMove, Moving
from zkcoord.offsets.ports import Commits
from zkcoord.offsets.side import Side
from zkcoord.operating.copies import remove_copy
from zkcoord.operating.migration_file import read_moves
from zkcoord.operating.requesting import Answer, wait, who_and_when, who_serves
from zkcoord.operating.saying import say
from zkcoord.operating.wave_file import refuse_waves_alone
from zkcoord.operating.words import cell
from zkcoord.settings import TOOL_TIMEOUT_MS
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.brokers_move import cluster_id_of
from zkcoord.tree.paths import CLUSTER_ID, FROM_KAFKA, FROM_ZOOKEEPER, LAYOUTS, TOPIC_SOURCES
from zkcoord.tree.schema import Schema, switch_command
from zkcoord.tree.snapshot import Read

OVER = "was moved already"
COLUMNS = ("GROUP", "OFFSETS", "FROM-KAFKA", "NODES", "STATE")


@click.command(cls=Command, example="zkcoord migrate move --to zk9:2181/kafka --group etl --dry-run")
@click.option("--to", "to", metavar="H:P[,H:P…][/CHROOT]", required=True, help="The address to which the groups move.")
@click.option("--layout", type=click.Choice(list(LAYOUTS)), help="Layout of the new tree (default: the same as here).")
@click.option(
    "--topics", type=click.Choice(TOPIC_SOURCES), help="Source of the new tree's topics (default: the same as here)."
)
@click.option("--group", "names", metavar="G", multiple=True, help="Move only this group; may be repeated.")
@click.option("--from", "file", metavar="FILE", help="Move only the groups of this TOML file, wave by wave.")
@click.option("--wave", "waves", type=at_least(1), multiple=True, metavar="N", help="With --from: only this wave.")
@click.option("--dry-run", is_flag=True, help="Look at both trees, and show what would be moved; write nothing.")
@click.option("--give-up", is_flag=True, help="Give up moves that have not ended: these groups go on where they are.")
@number_option("--timeout-ms", default=60_000, text="How long to wait for each group's pause.")
@pass_settings
def move(
    settings: Settings,
    to: str,
    layout: str | None,
    topics: str | None,
    names: tuple[str, ...],
    file: str | None,
    waves: tuple[int, ...],
    dry_run: bool,
    give_up: bool,
    timeout_ms: int,
) -> None:
    """Move groups to another chroot, layout or ensemble: all of them, or some, in waves.

    All chosen groups are checked first; if one cannot be moved, none is moved. If no group is named, groups that
    another move has taken elsewhere are left out. Then each group is paused, copied, compared and resumed in the new
    tree, one after the other: from then on nobody reads it here. Then start its consumers with the new address. Groups
    with offsets in Kafka need --bootstrap-servers.

    If there is no tree at the new address, it is created. If no brokers are registered at that address, give --topics
    kafka, unless the tree here has this source already. If the move breaks off, run it again. The same command in the
    other direction moves a group back.
    """
    refuse_waves_alone(waves, file)
    _refuse_together(names, file, give_up=give_up, dry_run=dry_run)
    wanted = names if file is None else read_moves(file, waves)
    with ExitStack() as stack:
        tree = stack.enter_context(settings.tree())
        source, schema = _side(tree, settings.zookeeper_address())
        chosen = _chosen(tree, source, wanted)
        if give_up:
            _Work(settings, stack, source, source, timeout_ms).give_up(chosen, to)
            return
        there = stack.enter_context(Tree(to, deadline_ms=TOOL_TIMEOUT_MS, config=settings.zookeeper_settings()))
        founding = _founding(tree, schema, layout, topics)
        target = founding.target(Rehearsal(there), to)
        if source.tree_id == target.tree_id:
            raise UsageError(f"{to} is the same tree: name another chroot or ensemble")
        work = _Work(settings, stack, source, target, timeout_ms)
        surveys = work.survey(chosen if wanted else work.left_here(chosen))
        for note in dict.fromkeys(note for found in surveys.values() for note in found.notes):
            say("notice", note)
        if not dry_run:
            work.target = founding.target(there, to)
        rows: list[list[Any]] = []
        try:
            for name, found in surveys.items():
                planned = OVER if found.over else "would be moved"
                done, state = (found, planned) if dry_run else work.move(name)
                rows.append(_row(settings, name, done, state))
        finally:  # also if one of them could not be moved
            if not settings.json:
                click.echo(table(COLUMNS, rows))
    if dry_run:
        say("notice", "nothing was written: --dry-run")
    elif rows:
        if work.target.layout.mirrored:
            say("notice", f"at {to} {AFTER[FROM_KAFKA]}")
        say("notice", f"start the consumers with --zookeeper {to}; those that still run here read nothing: stop them")


def _refuse_together(names: Sequence[str], file: str | None, *, give_up: bool, dry_run: bool) -> None:
    """Raise UsageError for options that exclude each other."""
    if names and file is not None:
        raise UsageError("--from names the groups itself: give no --group with it")
    if give_up and dry_run:
        raise UsageError(
            "--give-up has no dry run (`zkcoord group describe G` shows the move that it ends): leave --dry-run out"
        )


def _row(settings: Settings, name: str, found: Moving, state: str) -> list[Any]:
    document = {"offsets": found.offsets, "from_kafka": found.from_kafka, "nodes": found.nodes, "state": state}
    if settings.json:
        print_json({"group": name, **document})
    return [cell(name), *document.values()]


def _side(tree: BlockingTree, address: str) -> tuple[Side, Schema]:
    """Return the tree at `address`, and its schema. Raise SchemaError if there is none, or if groups cannot be moved
    from or to it."""
    schema = current(tree)
    if schema is None:
        raise SchemaError(f"no zkcoord tree at {address}: run `zkcoord migrate upgrade` there first")
    refuse_newer(schema)
    mark = read_mark(schema)
    if mark is not None:
        raise SchemaError(f"{address}: a migration is in progress: end it first (`zkcoord migrate upgrade`)")
    if not schema.tree_id:
        raise SchemaError(f"the tree at {address} has no id: run `zkcoord migrate upgrade` there first")
    layout = schema.place
    return Side(tree=tree, layout=layout, tree_id=schema.tree_id, address=address), schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _Founding:
    """How to make the other tree, if there is none. `topics` None: its topics come from `source`, like those of this
    tree.

    `cluster_id`: the id of the cluster that the groups read; "": not known.
    """

    layout: str
    topics: str | None
    source: str
    cluster_id: str
    revision: str

    def target(self, tree: BlockingTree, address: str) -> Side:
        """Return the other tree. If there is none, make it so that coordinators of the same releases can serve it."""
        if current(tree) is None:
            topics = self.topics or self.source
            goal = self.revision if topics == FROM_ZOOKEEPER else max(self.revision, KAFKA_TOPICS_SINCE)
            run_id = uuid.uuid4().hex
            upgrade(tree, run_id=run_id, layout=self.layout, goal=goal, topics=topics, cluster_id=self.cluster_id)
        side, schema = _side(tree, address)
        if side.layout.name != self.layout:
            raise SchemaError(
                f"the tree at {address} has layout {side.layout.name}, not {self.layout}: give --layout, or --to"
            )
        if self.topics not in (None, schema.topics):
            raise SchemaError(
                f"the tree at {address} takes its topics from {schema.topics}, not from {self.topics}: leave --topics "
                f"out, or run `{switch_command(self.topics)}` there"
            )
        return side


def _founding(tree: BlockingTree, schema: Schema, layout: str | None, topics: str | None) -> _Founding:
    """Return how to make the other tree, from this tree's schema."""
    return _Founding(
        layout=layout or schema.layout,
        topics=topics,
        source=schema.topics,
        cluster_id=schema.cluster_id or cluster_id_of(tree.read([Read(CLUSTER_ID)])[0]) or "",
        revision=schema.revision,
    )


def _chosen(tree: BlockingTree, source: Side, names: Sequence[str]) -> list[str]:
    there = [name for name in group_names(tree, source.layout) if may_name_a_group(name)]
    for name in names:
        if name not in there:
            raise UsageError(no_such_group(name))
    return list(dict.fromkeys(names)) if names else there


@dataclass(slots=True)
class _Work:
    """The work of one command: the moves of the groups, and Kafka once it is needed."""

    settings: Settings
    stack: ExitStack
    source: Side
    target: Side
    timeout_ms: int
    store: KafkaCommits | None = None

    def survey(self, names: Sequence[str]) -> dict[str, Moving]:
        """Check all groups. If one cannot be moved, raise UsageError with each reason."""
        found: dict[str, Moving] = {}
        refused: list[str] = []
        for name in names:
            try:
                found[name] = self._one(name).survey()
            except UsageError as error:
                refused.append(str(error))
        if refused:
            raise UsageError("; ".join(refused) + "; nothing was moved")
        return found

    def left_here(self, names: Sequence[str]) -> list[str]:
        """Return the groups that no other move has taken, and print a notice about the others."""
        there = {name: self._one(name).elsewhere() for name in names}
        for where in filter(None, there.values()):
            say("notice", f"{where}: it is left out")
        return [name for name in names if not there[name]]

    def move(self, name: str) -> tuple[Moving, str]:
        """Move one group, from the point where an earlier run has left it. Return what was done, and the result in one
        word."""
        one = self._one(name)
        _, before = self.source.record(name)
        fresh, copied = before is None or before.moved is None, False
        try:
            if one.begin() is MoveState.GONE:
                one.open()
                return Moving(over=True), OVER
            self._wait(one)
            copied = True
            return one.carry_out(), "moved"
        except BaseException:
            if fresh and self._take_back(one) and copied:
                say("notice", f"group {name}: goes on here; --give-up removes what was copied to {one.target.address}")
            raise

    def _take_back(self, one: GroupMove) -> bool:
        """End the pause of a move that failed. The group goes on here, except if it already counts in the other
        tree."""
        try:
            return one.give_up(only_mine=True)
        except ZkcoordError as error:
            say("notice", f"group {one.group} may still be paused here: {error}")
            return False

    def give_up(self, names: Sequence[str], to: str) -> None:
        """Give up the moves that have not ended, then remove the copies. The other tree may never come back."""
        given_up = {name: self._given_up(name) for name in names}
        removed = self._without_copies(names, to)
        if not removed and not any(given_up.values()):
            say("notice", "nothing was given up: no move to there is under way, and there is no copy to remove")
        for name, taken_back in given_up.items() if self.settings.json else ():
            print_json({"group": name, "given_up": taken_back, "copy_removed": name in removed})

    def _given_up(self, name: str) -> bool:
        try:
            taken_back = self._one(name).give_up()
        except ZkcoordError as error:
            say("notice", str(error))
            return False
        if taken_back and not self.settings.json:
            click.echo(f"group {name}: goes on here")
        return taken_back

    def _without_copies(self, names: Sequence[str], to: str) -> set[str]:
        """Remove the copies of these moves. Return the groups that had one."""
        removed = set[str]()
        target = self._copies(to)
        if target is None:
            return removed
        for name in names:
            try:
                if remove_copy(self.source, target, name):
                    removed.add(name)
            except ZkcoordError as error:
                say("notice", str(error))
        for name in sorted(removed) if not self.settings.json else ():
            click.echo(f"group {name}: its copy at {to} is removed")
        return removed

    def _copies(self, to: str) -> Side | None:
        """Return the tree that may hold copies; None if there is none, or if it does not answer."""
        limits, config = self.settings.limits, self.settings.zookeeper_settings()
        try:
            tree = self.stack.enter_context(Tree(to, deadline_ms=limits.tree_wait_ms, config=config))
            return None if current(tree) is None else _side(tree, to)[0]
        except ZkcoordError as error:
            again = "nobody reads it; run this again when that tree answers"
            say("notice", f"what was copied to {to} stays there, since it cannot be removed now ({error}): {again}")
            return None

    def _one(self, name: str) -> GroupMove:
        return GroupMove(
            source=self.source, target=self.target, group=name, asked=Request(**who_and_when()), commits=self._commits
        )

    def _wait(self, one: GroupMove) -> None:
        address = self.settings.zookeeper_address()
        wait(
            f"pause of group {one.group}",
            self.timeout_ms,
            lambda: Answer(run=one.run, state="paused") if one.stopped() else None,
            lambda: who_serves(self.source.tree, address),
            "it goes on where it is",
        )

    def _commits(self, group: str) -> Commits:
        if self.store is None:
            client = kafka_beside(self.settings, self.stack, self.source.tree)
            self.store = KafkaCommits(client)
        return self.store.read([group]).of(group)
