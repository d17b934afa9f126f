"""Moves the offsets of one group to another store, step by step: from `zookeeper` to `dual` to `kafka`, or back.

The group's record holds all that a run has done: the store, the number of the step, and the run itself. So the same
command continues a run that broke off. A later run takes over from an earlier one. The earlier run sees that at its
next turn, and writes nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES, ZOOKEEPER
from zkcoord.core.record import GroupRecord, StoreMigration
from zkcoord.core.stores import can_use, come_to, lagging
from zkcoord.core.view import START, GroupView
from zkcoord.core.words import count, some
from zkcoord.errors import UnavailableError
from zkcoord.group_report import read_group
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.equality import Difference, Equality
from zkcoord.offsets.ports import GroupStore
from zkcoord.offsets.reading import rule_of
from zkcoord.offsets.writing import RecordChangedError
from zkcoord.operating.requesting import edit_record
from zkcoord.tree.paths import Layout
from zkcoord.tree.writes import CheckNode

NAMED_MAX = 3


class Stage(Enum):
    """The state of a run."""

    WAITING = "waiting"
    DONE = "done"
    REFUSED = "refused"


class Turn(NamedTuple):
    """The result of one turn of a run. `why`: what the run waits for, or why it is refused."""

    stage: Stage
    store: str
    step: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The tree, the store in Kafka and the partitions with which a run works."""

    tree: BlockingTree
    layout: Layout
    tree_id: str
    kafka: GroupStore
    existing: frozenset[TopicPartition]  # partitions of topics that exist


def steps(store: str, goal: str) -> list[str]:
    """Return the stores on the way from `store` to `goal`, without `store`.

    >>> steps("zookeeper", "kafka"), steps("dual", "zookeeper"), steps("dual", "dual")
    (['dual', 'kafka'], ['zookeeper'], [])
    """
    here, there = STORES.index(store), STORES.index(goal)
    return list(STORES[here + 1 : there + 1]) if here < there else list(reversed(STORES[there:here]))


@dataclass(slots=True, kw_only=True)
class Migration:
    """One run for one group. `turn` does what can be done now, and never waits."""

    places: Places
    group: str
    goal: str
    run: Mapping[str, Any]  # who, when, run
    force: bool = False
    differences: list[Difference] = field(default_factory=list)
    # those of the last look; with `force`, those that were accepted
    _begun: bool = False
    _equality: Equality | None = None

    def look(self) -> tuple[GroupView, str]:
        """Return the group, and why it cannot be moved to the goal; "": it can be moved. Write nothing."""
        view = read_group(self.places.tree, self.places.layout, self.group).view
        if view.unreadable is not None:
            return view, f"an operator must mend what cannot be read: {view.unreadable}"
        obstacle = _obstacle(view, self.goal)
        if obstacle or not (left := steps(view.record.store_name, self.goal)):
            return view, obstacle
        if not self.places.tree_id:
            return view, "the tree has no id, which commits in Kafka must name: run `zkcoord migrate upgrade` first"
        if left[-1] != ZOOKEEPER and (users := self.places.kafka.users(self.group)):
            named = some(users, NAMED_MAX)
            return (
                view,
                f"consumers of Kafka's own protocol use the group id ({named}): stop them, or rename their group",
            )
        return view, ""

    def turn(self, now_ms: int) -> Turn:
        """Go on as far as possible now. `now_ms`: the wall clock, for the metadata of commits to Kafka."""
        view, obstacle = self.look()
        record = view.record
        if obstacle:
            return Turn(Stage.REFUSED, record.store_name, record.store_step, obstacle)
        if not self._begun and record.store_name == self.goal and record.migration is None and not lagging(view):
            return Turn(Stage.DONE, record.store_name, record.store_step)
        if not self._begun:
            record = self._edit(lambda known: replace(known, migration=StoreMigration(goal=self.goal, **self.run)))
            self._begun = True
            return Turn(Stage.WAITING, record.store_name, record.store_step, "its coordinator")
        if (taken := self._taken_over(record)) is not None:
            return Turn(Stage.REFUSED, record.store_name, record.store_step, taken)
        return self._go_on(view, now_ms)

    def give_up(self) -> None:
        """Take this run out of the record. The store stays as it is."""
        if self._begun:
            edit_record(
                self.places.tree,
                self.places.layout,
                self.group,
                lambda known: known if self._taken_over(known) else replace(known, migration=None),
            )

    def _go_on(self, view: GroupView, now_ms: int) -> Turn:
        record, waits = view.record, lagging(view)
        left = steps(record.store_name, self.goal)
        if waits and not (left and _beside(view, left[0])):
            first = some([f"{consumer} {why}" for consumer, why in waits.items()], 1)
            said = f"{first} ({record.store_name}, step {record.store_step})"
            return Turn(Stage.WAITING, record.store_name, record.store_step, said)
        if not left:
            record = self._edit(lambda known: replace(known, migration=None))
            return Turn(Stage.DONE, record.store_name, record.store_step)
        if record.store.tenured and record.store.node_counts:
            why = self._not_equal(view, left[0], now_ms)
            if why:
                return Turn(Stage.WAITING, record.store_name, record.store_step, why)
        done = self._take(record, left[0])
        return Turn(Stage.WAITING, done.store_name, done.store_step, "its coordinator")

    def _not_equal(self, view: GroupView, goal: str, now_ms: int) -> str:
        """Look at both stores. Return why the step away from `dual` cannot be taken yet; "": it can be taken."""
        places = self.places
        if self._equality is None:
            self._equality = Equality(
                tree=places.tree,
                commits=places.kafka,
                layout=places.layout,
                tree_id=places.tree_id,
                group=self.group,
                goal=goal,
                existing=places.existing,
                rule=rule_of(places.layout, view.record),
            )
        guard = [CheckNode(places.layout.record(self.group), view.record_version or 0)]
        looks = 2 if self.force else 1  # the first look makes equal the offsets of partitions that nobody holds
        try:
            for _ in range(looks):
                self.differences = self._equality.look(view.members, guard, now_ms)
        except RecordChangedError:
            return "somebody else wrote its record"
        except UnavailableError as error:
            return str(error)
        if not self.differences or self.force:
            return ""
        named = some([str(each.partition) for each in self.differences], NAMED_MAX)
        whys = sorted({each.why for each in self.differences if each.why})
        because = f": {whys[0]}" if whys else ""
        return f"{count(len(self.differences), 'offset')} not seen equal in both stores yet ({named}){because}"

    def _take(self, seen: GroupRecord, store: str) -> GroupRecord:
        """Write the next step. Write nothing if another step was taken since."""
        self._equality = None

        def edit(known: GroupRecord) -> GroupRecord:
            if (known.store_name, known.store_step) != (seen.store_name, seen.store_step):
                return known
            if known.under_way:
                return known  # the next turn reports it
            return replace(known, store_name=store, store_step=seen.store_step + 1)

        return self._edit(edit)

    def _edit(self, edit: Any) -> GroupRecord:
        def mine(known: GroupRecord) -> GroupRecord:
            return known if self._begun and self._taken_over(known) is not None else edit(known)

        return edit_record(self.places.tree, self.places.layout, self.group, mine)

    def _taken_over(self, record: GroupRecord) -> str | None:
        """Say who runs the migration instead of this run; None: this run still does."""
        other = record.migration
        if other is None:
            return "somebody ended this run meanwhile: look, and run it again"
        if other.run == self.run["run"]:
            return None
        return f"{other.who or 'somebody'} moves it to {other.goal!r} since {other.when or 'now'}"


def _obstacle(view: GroupView, goal: str) -> str:
    """Say why the group cannot be moved, and who must act; "": it can be moved."""
    record = view.record
    if view.observed:
        return f"it is not adopted: `zkcoord group adopt {view.group}` first"
    if record.store_name not in STORES:
        return f"its record names the store {record.store_name!r}, which this version does not know: upgrade zkcoord"
    if not view.mode.coordinated:
        return f"it is shared with old members ({view.mode.mode.value}): {view.mode.why}; replace these first"
    if record.moved is not None:
        return f"it {record.moved.where()}"
    if left_to := record.left_to(view.group):
        return f"it {left_to}"
    if record.under_way:
        return record.under_way
    for store in steps(record.store_name, goal):
        unable = [c for c, m in sorted(view.members.items()) if m.unreadable is not None or not can_use(m, store)]
        if unable:
            what = "give them bootstrap servers, upgrade them, or stop them"
            return f"these consumers cannot use the store {store!r}: {some(unable, NAMED_MAX)}: {what}"
    return ""


def _beside(view: GroupView, store: str) -> bool:
    """Return True if each store that a member uses now, or will use, is `store` or its neighbour. Then a member that
    takes a partition over from another member finds its offset."""
    names = {view.record.store_name}
    for consumer_id in view.members.keys() & view.channels.keys():
        channel = view.channels[consumer_id]
        names |= {channel.store_name or ZOOKEEPER, come_to(channel).name or ZOOKEEPER}
        names |= {command.store_name or ZOOKEEPER for command in channel.commands if command.option == START}
    return all(name in STORES and abs(STORES.index(name) - STORES.index(store)) <= 1 for name in names)
