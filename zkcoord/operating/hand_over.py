"""Hands a group over to consumers of Kafka's own protocol, and takes it back.

Kafka's consumers and zkcoord's consumers have different coordinators, which do not know each other. So they must not
read one group at the same time. While the group is handed over, it is paused, and its record says why. The record and
the offsets hold all that a run has done: a run that broke off is run again, and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import KAFKA
from zkcoord.core.record import BEGUN, DEFAULT_RECORD, DONE, PAUSE, GroupRecord, Request
from zkcoord.core.tenure import Rule
from zkcoord.core.words import count
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.earlier_topics import created_again
from zkcoord.offsets.equality import Difference, Equality
from zkcoord.offsets.ports import GroupStore
from zkcoord.offsets.reading import read_group_offsets
from zkcoord.offsets.writing import RecordChangedError, readers_of
from zkcoord.operating.requesting import Answer, edit_record, read_record, wait, who_and_when, who_serves
from zkcoord.tree.bulk import children
from zkcoord.tree.paths import Layout
from zkcoord.tree.request import requested
from zkcoord.tree.writes import CheckNode

ENDED = "somebody ended its pause meanwhile: look, and run it again"
STANDS = "the group stays paused: run it again"


class Row(NamedTuple):
    """A partition: its offset in each store, and the offset from which it goes on."""

    partition: TopicPartition
    zookeeper: int | None
    kafka: int | None
    goes_on_at: int | None


@dataclass(slots=True, kw_only=True)
class HandOver:
    """One group on its way to Kafka's consumers, or back.

    A commit in Kafka without zkcoord's metadata counts once the group was left to Kafka's consumers, because they made
    it. Before that, another program made it, and to follow it might skip records. `force`: it counts anyway.
    """

    tree: BlockingTree
    layout: Layout
    tree_id: str
    group: str
    kafka: GroupStore
    existing: frozenset[TopicPartition]
    force: bool = False
    left: list[Difference] = field(default_factory=list)  # offsets that were not equal at the last look
    trouble: str = ""  # why the last look failed
    _run: str | None = None  # of the pause that this run has requested or found

    def record(self) -> GroupRecord:
        """Return the group's record, read now."""
        return read_record(self.tree, self.layout, self.group) or DEFAULT_RECORD

    @property
    def rule(self) -> Rule:
        """Which offset of a partition counts."""
        return Rule.OLD_IN_KAFKA if self.force or self.record().left_to_kafka else Rule.TENURE

    def refuse_users(self) -> None:
        """Raise UsageError if consumers of Kafka's own protocol are in the group."""
        if read_by := self._users():
            raise UsageError(f"group {self.group} {read_by}: stop them")

    def _users(self) -> str:
        users = self.kafka.users(self.group)
        return f"is read by consumers of Kafka's own protocol ({users[0]})" if users else ""

    def refuse_others(self) -> None:
        """Raise UsageError if a tool works on the group, or if the group has members that cannot be paused."""
        self._refuse_tools(self.record())
        if others := readers_of(self.tree.read, self.layout, self.group).others:
            raise UsageError(f"group {self.group} has members that cannot be paused ({others[0]}): stop them first")

    def _refuse_tools(self, record: GroupRecord) -> None:
        if record.migration is not None:
            raise UsageError(
                f"the offsets of group {self.group} are being moved between stores: wait until that is over"
            )
        if record.store.node_counts:
            how = f"`zkcoord offsets migrate {self.group} --to kafka` first"
            raise UsageError(f"group {self.group} keeps its offsets in the store {record.store_name!r}: {how}")
        if what := record.under_way:
            raise UsageError(f"group {self.group}: {what}")

    def pause(self) -> None:
        """Request a pause whose request says that the group is handed over, or continue one that says so already.

        With `force`, the record says that the group was left to Kafka's consumers. So a later run continues in this
        way.
        """
        mine = Request(**who_and_when())

        def edit(record: GroupRecord) -> GroupRecord:
            self._refuse_tools(record)
            found = record.requests.get(PAUSE)
            standing = mine if found is None else found if record.handed_over else replace(found, paused=True)
            stage = DONE if self.force else standing.handed_over or BEGUN
            return requested(record, PAUSE, replace(standing, handed_over=stage))

        self._run = _run_of(edit_record(self.tree, self.layout, self.group, edit))

    def leave(self) -> None:
        """Note that Kafka has all offsets. From now on Kafka's consumers may be started."""

        def edit(record: GroupRecord) -> GroupRecord:
            return requested(record, PAUSE, replace(self._mine(record), handed_over=DONE))

        edit_record(self.tree, self.layout, self.group, edit)

    def resume(self) -> bool:
        """Take the pause back. Return False if people had paused the group before: then it stays paused."""

        def edit(record: GroupRecord) -> GroupRecord:
            standing = record.requests.get(PAUSE)
            if standing is None or (self._run and self._run == _run_of(record) and not record.handed_over):
                return record  # it is done, and the answer was lost
            kept = replace(self._mine(record), handed_over="", paused=False)
            return requested(record, PAUSE, kept if standing.paused else None)

        return edit_record(self.tree, self.layout, self.group, edit).requests.get(PAUSE) is None

    def _mine(self, record: GroupRecord) -> Request:
        """Return the pause of this run. Raise UsageError if somebody has ended it, perhaps for another pause."""
        standing = record.requests.get(PAUSE)
        if standing is None or not record.handed_over or _run_of(record) != self._run:
            raise UsageError(f"group {self.group}: {ENDED}")
        return standing

    def equal(self, now_ms: int) -> Answer | None:
        """Make both stores equal once nobody reads the group. Return None if that is not done yet. `now_ms`: the wall
        clock, for people.

        All offsets must be equal at one look. Nobody writes any more; only a former owner's commit may arrive late.
        """
        readers = readers_of(self.tree.read, self.layout, self.group)
        self._mine(self.record())  # if `readers` has an earlier version of the record, its guard refuses the write
        self.trouble = ""
        if not readers.paused:
            return None
        try:
            if read_by := self._users():  # Kafka's consumers have come meanwhile
                self.trouble = f"it {read_by}"
                return None
            return self._look(readers.guard, now_ms)
        except RecordChangedError:  # the next turn reads the change
            return None
        except UnavailableError as error:
            self.trouble = str(error)
            return None

    def _look(self, guard: Sequence[CheckNode], now_ms: int) -> Answer | None:
        equality = Equality(
            tree=self.tree,
            commits=self.kafka,
            layout=self.layout,
            tree_id=self.tree_id,
            group=self.group,
            goal=KAFKA,
            existing=self.existing,
            rule=self.rule,
        )
        self.left = equality.look((), guard, now_ms)
        return None if self.left else Answer(run="", state="equal")

    def _earlier(self) -> set[str]:
        """Return the topics that were created again and whose offsets in the tree are of the earlier topic. These
        offsets are removed. After that, Kafka's offset of such a topic counts."""
        (marks,) = children(self.tree.read, [self.layout.marks(self.group)])
        return set(created_again(self.tree.read, self.layout, self.group, marks.children))

    def wait(self, what: str, timeout_ms: int, address: str) -> None:
        """Wait until both stores are equal."""
        wait(
            f"{what} of group {self.group}",
            timeout_ms,
            lambda: self.equal(int(time.time() * 1000)),
            self._doing(address),
            STANDS,
        )

    def _doing(self, address: str) -> Callable[[], str]:
        """Return a function that says what the run waits for."""

        def told() -> str:
            if self.trouble:
                return self.trouble
            if not self.left:
                return f"its consumers stop; {who_serves(self.tree, address)}"
            first = self.left[0]
            return f"{count(len(self.left), 'offset')} not equal in both stores yet ({first.partition}: {first.why})"

        return told

    def rows(self) -> list[Row]:
        """Return each partition's offsets in both stores, and where it goes on, as of now."""
        rule, earlier = self.rule, self._earlier()
        seen = read_group_offsets(self.tree.read, self.layout, self.group)
        commits = self.kafka.read([self.group]).of(self.group)
        found = []
        for partition in sorted({*seen.offsets, *commits} & self.existing):
            node, commit = seen.node(partition), commits.get(partition)
            here, there = None if node is None else node.offset, None if commit is None else commit.offset
            counts = there if partition.topic in earlier else seen.counts(partition, commit, self.tree_id, rule)
            found.append(Row(partition, here, there, counts))
        return found


def _run_of(record: GroupRecord) -> str:
    pause = record.requests.get(PAUSE)
    return "" if pause is None else pause.run
