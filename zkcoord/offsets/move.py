"""Moves one group from one tree to another: to another chroot, layout or ensemble. Each step reads both trees.

Each tree's record of the group says how far the move is. The source says `leaving` while the copy is made, and `gone`
before the copy may be read. So the two never count at the same time. The copy says `arriving` until it may be read. A
move that broke off is run again, and continues from the state in the records. A second run takes over by writing its
name into both records: every write checks the record of its own tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, DELETE, PAUSE, RESET, GroupRecord, Request, Response
from zkcoord.core.requests import PAUSED
from zkcoord.core.tenure import Rule
from zkcoord.core.words import some
from zkcoord.errors import CorruptError, FencedError, UnavailableError, UsageError, invariant
from zkcoord.offsets.earlier_topics import refuse_earlier
from zkcoord.offsets.ports import Commits
from zkcoord.offsets.reading import GroupSeen, read_group_offsets
from zkcoord.offsets.side import Side
from zkcoord.offsets.writing import NAMED_MAX, Readers, readers_of
from zkcoord.tree.bulk import children, data
from zkcoord.tree.paths import Layout, Place
from zkcoord.tree.registration import TOMBSTONE, encode_tombstone
from zkcoord.tree.request import requested
from zkcoord.tree.snapshot import Node
from zkcoord.tree.state import decode_state
from zkcoord.tree.topic import decode_mark, mark_in_a_copy, topic_of
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, DeleteNode, parts

AskKafka = Callable[[str], Commits]
"""Returns a group's commits in Kafka. Raises an error if Kafka does not tell them."""


@dataclass(slots=True)
class Moving:
    """The result of a move, or of a dry run, for one group."""

    offsets: int = 0
    from_kafka: int = 0  # those of `offsets` for which the commit in Kafka counted
    nodes: int = 0  # nodes that were created or set in the other tree, without offsets
    over: bool = False  # True if it was moved before
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """One run for one group. `asked` is its request: who asks, when, and the run's name."""

    source: Side
    target: Side
    group: str
    asked: Request
    commits: AskKafka

    @property
    def run(self) -> str:
        """The name of this run."""
        return self.asked.run

    # before anything is written

    def survey(self) -> Moving:
        """Look at both trees. Raises UsageError with the reason if the group cannot be moved."""
        _, record = self.source.record(self.group)
        self._refuse_source(record or DEFAULT_RECORD)
        if record is not None and record.moved is not None and record.moved.state is MoveState.GONE:
            return Moving(over=True)
        self._refuse_target()
        seen, wanted = self._counted()
        found = Moving(offsets=len(wanted), from_kafka=_differing(seen, wanted))
        self._look_at_topics({partition.topic for partition in wanted}, found.notes)
        self._refuse_others()
        _, there = self.target.record(self.group)
        known = (record is not None and record.adoption is not None) or (
            there is not None and there.adoption is not None
        )
        if self.target.layout.adopts and not known:
            found.notes.append(f"group {self.group}: adopt it there (`zkcoord group adopt`): until then nobody reads")
        return found

    def elsewhere(self) -> str:
        """Say where the group is if another move keeps it from being moved from here; "": it is here."""
        _, record = self.source.record(self.group)
        return self._elsewhere(record or DEFAULT_RECORD)

    def _elsewhere(self, record: GroupRecord) -> str:
        moved = record.moved
        here = moved is None or (moved.state is not MoveState.ARRIVING and moved.tree == self.target.tree_id)
        return "" if here or moved is None else f"group {self.group} {moved.where()}"

    def _refuse_source(self, record: GroupRecord) -> None:
        if where := self._elsewhere(record):
            raise UsageError(f"{where}: end that move first")
        for name in (RESET, DELETE):
            if name in record.requests:
                raise UsageError(f"group {self.group}: a {name} is under way: end it first")
        if record.migration is not None:
            raise UsageError(f"group {self.group}: its offsets are being moved between stores: end that first")
        if left_to := record.left_to(self.group):
            raise UsageError(f"group {self.group} {left_to}")
        if (pause := record.requests.get(PAUSE)) is not None and pause.who == "coordinator":
            raise UsageError(f"group {self.group} was paused behind a reset that broke off: end the reset first")

    def _refuse_target(self) -> None:
        """The target must have no such group, unless this group was moved from there, or a copy was begun."""
        _, there = self.target.record(self.group)
        if there is not None:
            self._may_arrive(there)
            return
        seen = read_group_offsets(self.target.tree.read, self.target.layout, self.group)
        readers = readers_of(self.target.tree.read, self.target.layout, self.group)
        names = (*readers.ours, *readers.others)
        if seen.offsets or names:
            what = f"consumers ({some(sorted(names), NAMED_MAX)})" if names else "offsets"
            raise UsageError(f"there is a group {self.group} with {what} at {self.target.address}: remove it first")

    def _may_arrive(self, there: GroupRecord) -> None:
        moved = there.moved
        if moved is None:
            raise UsageError(f"there is a group {self.group} at {self.target.address}: delete it there first")
        if moved.tree != self.source.tree_id or moved.state is MoveState.LEAVING:
            raise UsageError(f"group {self.group} at {self.target.address} {moved.where()}: end that move first")

    def _look_at_topics(self, topics: set[str], notes: list[str]) -> None:
        """Refuse topics that are missing in the target, or are others: their offsets would be dropped."""
        where = self.target.layout.topics
        (folder,) = children(self.target.tree.read, [where])
        if not folder.exists:
            who = "a coordinator must have mirrored it" if self.target.layout.mirrored else "Kafka must be there"
            notes.append(f"{self.target.address} has no {where} yet: {who} before consumers start")
            return
        named = sorted(topics)
        here, there = (
            data(side.tree.read, [side.layout.topic(t) for t in named]) for side in (self.source, self.target)
        )
        for topic, old, new in zip(named, here, there, strict=True):
            if old.exists and not new.exists:
                raise UsageError(f"group {self.group}: topic {topic} does not exist at {self.target.address}")
            ids = [topic_of(topic, node.data).topic_id for node in (old, new) if node.exists]
            if len(ids) == 2 and None not in ids and ids[0] != ids[1]:
                raise UsageError(f"group {self.group}: topic {topic} at {self.target.address} is another one")

    # step by step

    def begin(self) -> MoveState:
        """Write this run into the source's record, and request a pause. Returns how far an earlier run came."""

        def edit(record: GroupRecord | None) -> GroupRecord:
            known = record or DEFAULT_RECORD
            self._refuse_source(known)
            if known.moved is not None:
                if known.moved.state is not MoveState.LEAVING:
                    return known
                going = replace(known, moved=replace(known.moved, run=self.run))
                return going if PAUSE in known.requests else requested(going, PAUSE, self.asked)
            paused = PAUSE in known.requests
            moved = Moved(
                state=MoveState.LEAVING,
                tree=self.target.tree_id,
                address=self.target.address,
                run=self.run,
                paused=paused,
            )
            return replace(known if paused else requested(known, PAUSE, self.asked), moved=moved)

        after = self.source.edit(self.group, edit)
        invariant(after.moved is not None, "a move that was begun stands in the record")
        return after.moved.state if after.moved is not None else MoveState.LEAVING

    def stopped(self) -> bool:
        """True when nobody reads the group. Raises UsageError if a reader cannot be paused.

        Where old members cannot rebalance, a coordinator takes a pause back and begins nothing. Beside the tombstone,
        which was created once nobody read, nobody reads.
        """
        readers = self._refuse_others()
        return readers.paused or not readers.ours or TOMBSTONE in readers.others

    def give_up(self, *, only_mine: bool = False) -> bool:
        """Take back a move that has not ended: the group continues where it was. False: no move was begun.

        `only_mine`: leave a move alone that another run has taken over.
        """
        path = self.source.layout.registration(self.group, TOMBSTONE)

        def edit(record: GroupRecord | None) -> GroupRecord:
            moved = None if record is None else record.moved
            if record is None or moved is None or (only_mine and moved.run != self.run):
                return record or DEFAULT_RECORD
            if moved.state is not MoveState.LEAVING:
                gone = moved.state is MoveState.GONE
                what = "that has ended: a move back begins there" if gone else "run the command there"
                raise UsageError(f"group {self.group} {moved.where()}: {what}")
            return replace(record if moved.paused else requested(record, PAUSE, None), moved=None)

        _, before = self.source.record(self.group)
        if before is None or before.moved is None:
            return False
        return self.source.edit(self.group, edit, lambda: self.source.removal(path)).moved is None

    def carry_out(self) -> Moving:
        """Make the copy, and let it count. Call it once `stopped`."""
        found = Moving()
        self._keep_old_members_out()
        seen, wanted = self._counted()
        found.offsets, found.from_kafka = len(wanted), _differing(seen, wanted)
        # an offset that is gone since was of an earlier topic: `_compare` finds it missing
        self.source.put_offsets(
            self.group, wanted, self._leaving, lambda c: c.version is not None or c.partition not in seen.offsets
        )
        self._arrive()
        found.nodes = self._copy_nodes()
        self._copy_offsets(wanted)
        self._compare()
        self._leave()
        self.open()
        return found

    def open(self) -> None:
        """Let the copy count. This is the last step, after the source's record says that the group is gone."""
        path = self.target.layout.registration(self.group, TOMBSTONE)

        def edit(record: GroupRecord | None) -> GroupRecord:
            if record is None:
                raise UsageError(f"group {self.group} is gone from {self.target.address}: restore it from a backup")
            moved, left = record.moved, self._gone()
            if moved is None or left is None or (moved.state, moved.run) != (MoveState.ARRIVING, left.run):
                return record  # another run was faster, and others may have come after it
            if moved.paused:
                return replace(record, moved=None)
            responses = {name: each for name, each in record.responses.items() if name != PAUSE}
            return replace(requested(record, PAUSE, None), moved=None, responses=responses)

        self.target.edit(self.group, edit, lambda: self.target.removal(path))

    def _gone(self) -> Moved | None:
        """The move in the source's record, if it must only be opened, by its run. None: it must not."""
        _, record = self.source.record(self.group)
        moved = None if record is None else record.moved
        return moved if moved is not None and moved.state is MoveState.GONE else None

    def _refuse_others(self) -> Readers:
        """Return who may read the group. Raises UsageError for consumers that are not zkcoord's."""
        readers = readers_of(self.source.tree.read, self.source.layout, self.group)
        others = [name for name in readers.others if name != TOMBSTONE]
        if others:
            names = some(sorted(others), NAMED_MAX)
            raise UsageError(f"group {self.group} is read by {names}, and cannot be paused: stop these consumers first")
        return readers

    def _leaving(self) -> CheckNode:
        return self._guard(self.source, MoveState.LEAVING)

    def _arriving(self) -> CheckNode:
        return self._guard(self.target, MoveState.ARRIVING)

    def _guard(self, side: Side, state: MoveState) -> CheckNode:
        """A check of the record. Raises FencedError if the record does not name this run any more."""
        node, record = side.record(self.group)
        self._mine(None if record is None else record.moved, state, side)
        return CheckNode(node.path, -1 if node.stat is None else node.stat.version)

    def _mine(self, moved: Moved | None, state: MoveState, side: Side) -> None:
        if moved is None or moved.state is not state or moved.run != self.run:
            now = "is not being moved any more" if moved is None else f"{moved.where()}, by another run"
            raise FencedError(f"group {self.group} at {side.address} {now}: this run ends, and has moved nothing")

    def _keep_old_members_out(self) -> None:
        layout = self.source.layout
        if not layout.adopts:
            return
        path = layout.registration(self.group, TOMBSTONE)
        self.source.put({path: encode_tombstone(self.target.address)}, self._leaving)
        if not self.stopped():
            raise UsageError(f"group {self.group} is read again: run it again")

    def _counted(self) -> tuple[GroupSeen, dict[TopicPartition, int]]:
        """The offset of each partition that has one, from the store that counts."""
        seen = read_group_offsets(self.source.tree.read, self.source.layout, self.group)
        broken = {partition: each.problem for partition, each in seen.offsets.items() if each.problem is not None}
        for partition, problem in sorted(broken.items()):
            raise CorruptError(
                f"{self.source.layout.offset(self.group, partition)}: {problem}; an operator must mend it"
            )
        commits = {} if seen.rule is Rule.ZOOKEEPER else self.commits(self.group)
        found: dict[TopicPartition, int] = {}
        for partition in sorted({*seen.offsets, *commits}):
            value = seen.counts(partition, commits.get(partition), self.source.tree_id)
            if value is not None:
                found[partition] = value
        topics = {partition.topic for partition in found}
        refuse_earlier(self.source.tree.read, self.source.layout, self.group, topics, without_ids=True)
        return seen, found

    def _arrive(self) -> None:
        """Create the record of the copy, which nobody reads yet."""
        _, leaving = self.source.record(self.group)
        self._mine(None if leaving is None else leaving.moved, MoveState.LEAVING, self.source)
        if leaving is None or leaving.moved is None:
            return
        named = replace(leaving.moved, state=MoveState.ARRIVING, tree=self.source.tree_id, address=self.source.address)

        def edit(record: GroupRecord | None) -> GroupRecord:
            adoption, moved = leaving.adoption if self.target.layout.adopts else None, named
            if record is not None:
                self._may_arrive(record)
                adoption = adoption or record.adoption
                was_here = record.moved is not None and (record.moved.back or record.moved.state is MoveState.GONE)
                moved = replace(named, back=was_here)
            responses = {PAUSE: Response(run=self.run, state=PAUSED)}
            return replace(leaving, adoption=adoption, requests={PAUSE: self.asked}, responses=responses, moved=moved)

        self.target.edit(self.group, edit)

    def _copy_nodes(self) -> int:
        """Copy state, static members and marks. Nodes that the copy's coordinator has overwritten stay."""
        here, there, group = self.source.layout, self.target.layout, self.group
        marks, instances = children(self.source.tree.read, [here.marks(group), here.instances(group)])
        pairs = {here.state(group): there.state(group)}
        pairs |= {here.mark(group, name): there.mark(group, name) for name in marks.children}
        pairs |= {here.instance(group, name): there.instance(group, name) for name in instances.children}
        saved = [node for node in data(self.source.tree.read, list(pairs)) if node.exists]
        wanted = {pairs[node.path]: _copied(here, node) for node in saved}
        return self.target.put(wanted, self._arriving, lambda node: _behind(there, node, wanted[node.path]))

    def _copy_offsets(self, wanted: Mapping[TopicPartition, int]) -> None:
        side = self.target
        seen = read_group_offsets(side.tree.read, side.layout, self.group)
        extra = sorted(seen.offsets.keys() - wanted.keys())
        deletes = [DeleteNode(side.layout.offset(self.group, p), seen.offsets[p].version) for p in extra]
        for part in parts(deletes, lambda write: len(write.path) + WRITE_BYTES):
            side.commit((self._arriving(), *part))
        side.put_offsets(self.group, wanted, self._arriving)

    def _compare(self) -> None:
        """Check that both trees hold the same, and that nobody has read meanwhile."""
        here, there = (
            read_group_offsets(side.tree.read, side.layout, self.group) for side in (self.source, self.target)
        )
        old, new = (
            {p: each.node.offset for p, each in seen.offsets.items() if each.node.offset is not None}
            for seen in (here, there)
        )
        if old != new or not self.stopped():
            differing = sorted(p for p in {*old, *new} if old.get(p) != new.get(p))
            what = f"{', '.join(map(str, differing[:NAMED_MAX]))} differ" if differing else "somebody reads it"
            raise UnavailableError(f"group {self.group}: somebody wrote meanwhile ({what}): run it again")

    def _leave(self) -> None:
        """Turn the group's record in the source into a tombstone. From here on the copy counts."""

        def edit(record: GroupRecord | None) -> GroupRecord:
            moved = None if record is None else record.moved
            if record is not None and moved is not None and moved.state is MoveState.GONE and moved.run == self.run:
                return record
            self._mine(moved, MoveState.LEAVING, self.source)
            invariant(record is not None and moved is not None, "it is leaving")
            gone = None if moved is None else replace(moved, state=MoveState.GONE)
            return replace(record or DEFAULT_RECORD, moved=gone)

        self.source.edit(self.group, edit)


def _differing(seen: GroupSeen, wanted: Mapping[TopicPartition, int]) -> int:
    return sum(p not in seen.offsets or seen.offsets[p].node.offset != offset for p, offset in wanted.items())


def _copied(layout: Layout, node: Node) -> bytes:
    address = layout.parse(node.path)
    return mark_in_a_copy(node.data) if address is not None and address.place is Place.MARK else node.data


def _behind(layout: Layout, present: Node, wanted: bytes) -> bool:
    """True when the copy's node must be written. A mark or state that its coordinator has written is as good."""
    address = layout.parse(present.path)
    if not present.exists or address is None or address.place not in (Place.MARK, Place.STATE):
        return present.data != wanted or not present.exists
    try:
        if address.place is Place.STATE:
            return decode_state(present.data).generation < decode_state(wanted).generation
        marks = decode_mark(present.data), decode_mark(wanted)
    except CorruptError:
        return present.data != wanted
    return marks[1] is not None and (marks[0] is None or marks[0].incarnation != marks[1].incarnation)
