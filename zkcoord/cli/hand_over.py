"""`zkcoord group hand-over|take-back`: a group is left to consumers of Kafka's own protocol, and comes back.

Kafka's consumers and zkcoord's have coordinators that know nothing of each other, so they must not read one group at
the same time. The group is paused for as long as it is handed over, and its record says so. What a run has done stands
in the record and in the offsets: one that broke off is run again, and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import click

from zkcoord.cli.group_waiting import count
from zkcoord.cli.offset_stores import kafka_client
from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json, say, table
from zkcoord.cli.requesting import Answer, edit_record, read_record, wait, who_and_when, who_serves
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import BEGUN, DEFAULT_RECORD, DONE, HANDED_OVER, KAFKA, PAUSE, RESET, GroupRecord
from zkcoord.core.tenure import Rule
from zkcoord.errors import UsageError
from zkcoord.group_report import read_tree
from zkcoord.migrate import BlockingTree, current
from zkcoord.offsets.equality import Difference, Equality
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import GroupStore
from zkcoord.offsets.reading import read_group_offsets
from zkcoord.offsets.writing import RecordChangedError, readers_of
from zkcoord.tree.paths import Layout
from zkcoord.tree.request import requested

COLUMNS = ("GROUP", "TOPIC", "PARTITION", "ZOOKEEPER", "KAFKA", "GOES-ON-AT")
WAIT_MS = 120_000
ENDED = "somebody ended its pause meanwhile: look, and run it again"
STANDS = "the group stays paused: run it again"
timeout = number_option("--timeout-ms", default=WAIT_MS, text="How long to wait until it is done.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show where each partition would go on; write nothing.")


class Row(NamedTuple):
    """A partition: its offset in either store, and where it goes on."""

    partition: TopicPartition
    zookeeper: int | None
    kafka: int | None
    goes_on_at: int | None


@dataclass(slots=True, kw_only=True)
class HandOver:
    """One group on its way to Kafka's consumers, or back.

    A commit in Kafka without zkcoord's metadata counts once the group was left to Kafka's consumers: they made it.
    Before that it is some other program's, and following it might skip records. `force`: it counts anyway.
    """

    tree: BlockingTree
    layout: Layout
    tree_id: str
    group: str
    kafka: GroupStore
    existing: frozenset[TopicPartition]
    force: bool = False
    left: list[Difference] = field(default_factory=list)  # offsets that were not seen equal yet
    _equality: Equality | None = None

    def record(self) -> GroupRecord:
        """Return the group's record as it is now."""
        return read_record(self.tree, self.layout, self.group) or DEFAULT_RECORD

    @property
    def rule(self) -> Rule:
        """Which offset counts."""
        return Rule.OLD_IN_KAFKA if self.force or self.record().left_to_kafka else Rule.TENURE

    def refuse_users(self) -> None:
        """UsageError while consumers of Kafka's own protocol are in the group."""
        if users := self.kafka.users(self.group):
            raise UsageError(f"group {self.group} is read by consumers of Kafka's own protocol ({users[0]}): stop them")

    def refuse_others(self) -> None:
        """UsageError while anybody else is in the group's way: a tool, or members that cannot be paused."""
        record = self.record()
        if record.store_name != KAFKA or record.migration is not None:
            how = f"`zkcoord offsets migrate {self.group} --to kafka` first"
            raise UsageError(f"group {self.group} keeps its offsets in the store {record.store_name!r}: {how}")
        if record.wish.get(RESET) is not None:
            raise UsageError(f"the offsets of group {self.group} are being reset: wait until that is over")
        if others := readers_of(self.tree.read, self.layout, self.group).others:
            raise UsageError(f"group {self.group} has members that cannot be paused ({others[0]}): stop them first")

    def pause(self) -> None:
        """Ask for a pause that says what it is for."""
        asked = who_and_when()

        def edit(record: GroupRecord) -> GroupRecord:
            return requested(record, PAUSE, {HANDED_OVER: BEGUN, **(record.wish.get(PAUSE) or asked)})

        edit_record(self.tree, self.layout, self.group, edit)

    def leave(self) -> None:
        """Note that Kafka has all offsets: from now on its consumers may be started."""

        def edit(record: GroupRecord) -> GroupRecord:
            if not record.handed_over:
                raise UsageError(f"group {self.group}: {ENDED}")
            return requested(record, PAUSE, {**(record.wish[PAUSE] or {}), HANDED_OVER: DONE})

        edit_record(self.tree, self.layout, self.group, edit)

    def resume(self) -> None:
        """Take the pause back."""
        edit_record(self.tree, self.layout, self.group, lambda record: requested(record, PAUSE, None))

    def equal(self, now_ms: int) -> Answer | None:
        """Once nobody reads, make both stores equal; None: not done yet. `now_ms`: the wall clock, for people."""
        if not self.record().handed_over:
            raise UsageError(f"group {self.group}: {ENDED}")
        readers = readers_of(self.tree.read, self.layout, self.group)
        if not readers.paused:
            return None
        if self._equality is None:
            self._equality = Equality(
                tree=self.tree,
                commits=self.kafka,
                layout=self.layout,
                tree_id=self.tree_id,
                group=self.group,
                goal=KAFKA,
                existing=self.existing,
                rule=self.rule,
            )
        with suppress(RecordChangedError):  # the next turn sees what was changed
            self.left = self._equality.look((), readers.guard, now_ms)
            return None if self.left else Answer(run="", state="equal")
        return None

    def wait(self, what: str, timeout_ms: int, address: str) -> None:
        """Wait until that is done."""
        wait(
            f"{what} of group {self.group}",
            timeout_ms,
            lambda: self.equal(int(time.time() * 1000)),
            self._doing(address),
            STANDS,
        )

    def _doing(self, address: str) -> Callable[[], str]:
        """Return what says what is waited for."""

        def told() -> str:
            if not self.left:
                return f"its consumers stop; {who_serves(self.tree, address)}"
            first = self.left[0]
            return f"{count(len(self.left), 'offset')} not equal in both stores yet ({first.partition}: {first.why})"

        return told

    def rows(self) -> list[Row]:
        """Return where each partition goes on, by what stands in both stores now."""
        rule = self.rule
        seen = read_group_offsets(self.tree.read, self.layout, self.group)
        commits = self.kafka.read([self.group]).of(self.group)
        found = []
        for partition in sorted({*seen.offsets, *commits} & self.existing):
            node, commit = seen.node(partition), commits.get(partition)
            counts = seen.counts(partition, commit, self.tree_id, rule)
            here = None if node is None else node.offset
            found.append(Row(partition, here, None if commit is None else commit.offset, counts))
        return found


def _opened(settings: Settings, stack: ExitStack, group: str, *, force: bool = False) -> HandOver:
    tree = stack.enter_context(settings.tree())
    layout = read_tree(tree, settings.zookeeper_address()).layout
    schema = current(tree)
    if schema is None or not schema.tree_id:
        raise UsageError("the tree has no id, which commits in Kafka must name: run `zkcoord migrate upgrade` first")
    edit_record(tree, layout, group, lambda record: record)  # refuses a group that is not there, or was moved
    client = stack.enter_context(kafka_client(settings))
    return HandOver(
        tree=tree,
        layout=layout,
        tree_id=schema.tree_id,
        group=group,
        kafka=KafkaCommits(client),
        existing=frozenset(client.partitions()),
        force=force,
    )


def _print(settings: Settings, group: str, rows: list[Row]) -> None:
    if settings.json:
        names = ("topic", "partition", "zookeeper", "kafka", "goes_on_at")
        for row in rows:
            print_json({"group": group, **dict(zip(names, (*row.partition, *row[1:]), strict=True))})
    else:
        click.echo(table(COLUMNS, [(group, *row.partition, *row[1:]) for row in rows]))


@click.command(name="hand-over", cls=Command)
@click.argument("name", metavar="G")
@dry_run_option
@timeout
@pass_settings
def hand_over(settings: Settings, name: str, dry_run: bool, timeout_ms: int) -> None:
    """Leave group G to consumers of Kafka's own protocol (group.protocol=classic or consumer).

    Pauses the group, and sees all its offsets in Kafka. Then stop its consumers, and start Kafka's with the same
    group.id. The group must keep its offsets in Kafka (`zkcoord offsets migrate G --to kafka`). It stays paused until
    `zkcoord group take-back G`. If this breaks off, run it again.
    """
    with ExitStack() as stack:
        way = _opened(settings, stack, name)
        way.refuse_others()
        try:
            way.refuse_users()
        except UsageError as error:
            if not way.record().handed_over:
                raise
            raise UsageError(f"group {name} is handed over already: {error} before it is handed over again") from None
        if not dry_run:
            way.pause()
            way.wait("hand-over", timeout_ms, settings.zookeeper_address())
            way.leave()
        _print(settings, name, way.rows())
    if dry_run:
        say("notice", "nothing was written; all consumers of the group would stop")
    else:
        say("notice", f"group {name} is paused, and Kafka has its offsets: stop its consumers, start Kafka's")


@click.command(name="take-back", cls=Command)
@click.argument("name", metavar="G")
@dry_run_option
@click.option("--force", is_flag=True, help="Also a group that was not handed over: what stands in Kafka counts.")
@timeout
@pass_settings
def take_back(settings: Settings, name: str, dry_run: bool, force: bool, timeout_ms: int) -> None:
    """Take group G back from consumers of Kafka's own protocol, which must be stopped.

    Its consumers go on where these have committed, forwards or backwards. A group that was not handed over is refused
    unless --force is given. If this breaks off, run it again.
    """
    with ExitStack() as stack:
        way = _opened(settings, stack, name, force=force)
        if not (way.record().handed_over or force):
            how = "its consumers go on by themselves (`zkcoord group describe`); --force takes what stands in Kafka"
            raise UsageError(f"group {name} is not handed over to Kafka's consumers: {how}")
        way.refuse_others()
        way.refuse_users()
        if not dry_run:
            way.pause()
            way.wait("return", timeout_ms, settings.zookeeper_address())
            way.refuse_users()  # one that has come meanwhile
        rows = way.rows()
        if not dry_run:
            way.resume()
        _print(settings, name, rows)
    say("notice", "nothing was written" if dry_run else f"group {name} goes on from there with zkcoord's consumers")


VERBS: tuple[click.Command, ...] = (hand_over, take_back)
