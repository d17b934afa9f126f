"""The other members of a group that may have old consumers: registrations, topics and owners, as one member follows
them.

Each registration is read once; one that cannot be read is watched. While old members are there, this watches the topics
of their plan, and the lists of owners of the member's own share. So the member sees which partitions come free.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from zkcoord.core.adoption import Adoption
from zkcoord.core.former_owners import FormerOwners
from zkcoord.core.member.neighbours import ALONE, Neighbours
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import ZOOKEEPER
from zkcoord.core.requests import has_been_left
from zkcoord.core.state import GroupState
from zkcoord.errors import CorruptError
from zkcoord.legacy.mode_watch import ModeWatch
from zkcoord.legacy.modes import named_as_ours
from zkcoord.shell.fair_queue import PATIENCE_MS
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import Address, Layout, Place, partition_numbers
from zkcoord.tree.record import decode_record
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.state import decode_state
from zkcoord.tree.topic import decode_mark

NEIGHBOURS = "neighbours"  # the scope of all that is followed here, lists of owners aside
LISTS = "lists of owners"  # their scope

Key = tuple[str, Kind]


class Neighbourhood:
    """The neighbours as one session follows them. Invariant: `_wanted` holds exactly the nodes that are followed
    here."""

    def __init__(self, layout: Layout, group: str, tracker: Tracker, stores: tuple[str, ...]) -> None:
        """`stores`: the offset stores that the consumer can use."""
        self._layout, self._group, self._tracker, self._stores = layout, group, tracker, stores
        self._modes, self._topics = ModeWatch(group), KnownTopics(layout)
        self._adoption: Adoption | None = None
        self._left = False  # True once the group is left to consumers of Kafka's own protocol
        self._record_version = 0
        self._record_path, self._state_path = layout.record(group), layout.state(group)
        self._notes = GroupState()  # the coordinator's notes, while they are needed
        self._ids_changes = 0  # number of members that came and went so far
        self._covering = 0  # the notes must cover so many of these: what this object did not see itself
        self._blind = True  # True while this object does not know what old members have, so also before the first look
        self._wanted: dict[str, set[Key]] = {}  # parent or own path -> what is followed there
        self._owned: dict[str, frozenset[int]] = {}  # topic -> partitions with an owner, for the topics of the share
        self._incarnations: dict[str, int] = {}
        self._joined_ms: dict[str, int] = {}  # when each registration was seen first
        self._store = ZOOKEEPER  # the offset store of the record
        self._seen_ms: int | None = None  # time of the first answer that `now` has not taken in
        self._current = False  # True when nothing was read since `_now` was made
        self._member = False
        self._now = ALONE
        self.own = ""  # path of the own registration, which `MemberWatch` follows
        self._follow(ids := layout.ids(group), (ids, Kind.CHILDREN))
        self._follow(self._state_path, (self._state_path, Kind.DATA))

    def topics_from(self, layout: Layout) -> None:
        """The tree's topics come from another place from now on: forget the topics of the earlier place."""
        if layout.topics == self._layout.topics:
            return
        self._follow_only(self._layout.topics, set())
        self._layout, self._topics, self._current = layout, KnownTopics(layout), False

    def begin(self) -> None:
        """The consumer is a member: from now on only this object follows the record."""
        self._member = True
        self._follow(self._record_path, (self._record_path, Kind.DATA))
        self._wait_for_others()

    def _wait_for_others(self) -> None:
        """While all members are zkcoord's, reads for this scope may wait, and are sent together with what a hand-over
        reads. A change of `ids` then counts from the earliest moment at which ZooKeeper may have reported it."""
        self._tracker.patient(NEIGHBOURS, patient=self._patient)

    @property
    def _patient(self) -> bool:
        """True when a node may have been reported up to `PATIENCE_MS` before it is read."""
        return self._member and self._now.mode.coordinated

    def _follow(self, above: str, *keys: Key, watch: bool = True, scope: str = NEIGHBOURS) -> None:
        for path, kind in keys:
            self._tracker.want(path, kind, watch=watch, scope=scope)
            self._tracker.watch(path, kind, watch)  # somebody else may have wanted it with another setting
        self._wanted.setdefault(above, set()).update(keys)

    def _follow_only(self, above: str, keys: set[Key], *, watch: bool = True, scope: str = NEIGHBOURS) -> bool:
        """Follow these nodes below `above`, and no others there. Returns True if one of them is new."""
        known = self._wanted.setdefault(above, set())
        new = keys - known
        for path, kind in sorted(known - keys, key=str):
            self._tracker.unwant(path, kind)
            known.discard((path, kind))
            if path.startswith(below := self._layout.topic("")):
                self._topics.drop(path.removeprefix(below))
        self._follow(above, *sorted(new, key=str), watch=watch, scope=scope)
        return bool(new)

    def take(self, node: Node, now_ms: int) -> bool:
        """Take in a node that was read. Returns True if it is followed here."""
        if node.path == self._record_path:  # also while `Joining` follows it
            self._record(node)
        elif node.path == self.own and (own := self._layout.parse(node.path)) is not None:
            self._current = False
            self._modes.take(own, node)
        places = node.path, node.path.rpartition("/")[0]
        if not any((node.path, node.kind) in self._wanted.get(above, ()) for above in places):
            return False
        self._current = False
        told_ms = now_ms - PATIENCE_MS if self._patient else now_ms
        if self._seen_ms is None:
            self._seen_ms = told_ms
        if node.path == self._layout.topics:
            self._topics.listed = frozenset(node.children) if node.exists else None
            self._topics.changes += 1
        elif node.path.startswith(self._layout.topic("")):
            self._topics.changes += 1
            self._topic(node)
        elif (address := self._layout.parse(node.path)) is not None:
            self._of_group(address, node, told_ms)
        return True

    def _topic(self, node: Node) -> None:
        try:
            self._topics.take(node)
        except CorruptError:
            return  # the earlier topic still counts; a coordinator reports the corrupt one

    def _of_group(self, address: Address, node: Node, told_ms: int) -> None:
        self._modes.take(address, node)
        match address.place:
            case Place.IDS:
                self._ids_changes = 0 if node.stat is None else node.stat.child_changes
                fresh = set(node.children).difference(self._joined_ms)
                if not all(named_as_ours(self._group, name) for name in fresh):
                    self._tracker.patient(NEIGHBOURS, patient=False)
                self._joined_ms = {name: self._joined_ms.get(name, told_ms) for name in node.children}
                names = {(f"{node.path}/{name}", Kind.DATA) for name in node.children} - {(self.own, Kind.DATA)}
                self._follow_only(node.path, {(node.path, Kind.CHILDREN), *names}, watch=False)
            case Place.CLAIMS:
                self._owned[address.name] = frozenset(partition_numbers(node.children))
            case Place.MARK:
                self._incarnations[address.name] = _incarnation(node)
            case Place.STATE:
                self._notes = _notes(node)

    def _former(self, mode: GroupMode, seen_ms: int) -> FormerOwners:
        """What old members had. What this object did not see itself stands in the coordinator's notes, which are
        followed as long as they count. Until they cover the first look, every partition may have been an old
        member's."""
        late_ms = 0 if self._adoption is None else self._adoption.late_ms
        former, notes = self._now.former, self._notes
        if self._blind and mode.settled:
            never_mixed = mode.coordinated and notes.mode is Mode.COORDINATED
            self._covering = 0 if never_mixed else self._ids_changes
            former = replace(former, earlier=None, earlier_until_ms=seen_ms + late_ms)
        self._blind = not mode.settled
        if mode is not self._now.mode or former is not self._now.former:
            former = former.after(mode, seen_ms, late_ms)
        waits = former.earlier_until_ms > seen_ms and former.earlier != frozenset()
        if waits and (former.earlier is not None or notes.old_as_of >= self._covering):
            former = replace(former, earlier=notes.old)
        path, followed = self._state_path, self._blind or (waits and former.earlier != frozenset())
        self._follow_only(path, {(path, Kind.DATA)} if followed else set())
        return former

    def _record(self, node: Node) -> None:
        self._current = False
        self._record_version = node.stat.version if node.stat else 0
        try:
            record = decode_record(node.data)
        except CorruptError:
            return  # the earlier record still counts
        self._adoption, self._store, self._left = record.adoption, record.store_name, has_been_left(record)

    def now(self, consumer_id: str, now_ms: int, held: Set[TopicPartition] = frozenset()) -> Neighbours | None:
        """Return what is known now, the same object while nothing changes. None while something must still be read.

        While the member holds all of its share, lists of owners are read patiently: an old member changes a list once
        for every partition, and each reading of it names all of them.
        """
        known = self._known(consumer_id, now_ms)
        if known is not None:
            self._tracker.patient(LISTS, patient=(known.share or {}).keys() <= held)
        return known

    def _known(self, consumer_id: str, now_ms: int) -> Neighbours | None:
        if not self._tracker.clean(NEIGHBOURS):
            return None
        ends_ms = self._now.mode.grace_ends_ms
        if self._current and (ends_ms is None or now_ms < ends_ms):
            return self._now
        old = bool(self._modes.neighbours.old)
        for name in self._modes.neighbours.unreadable:  # their makers may be about to write them
            self._tracker.watch(self._layout.registration(self._group, name), Kind.DATA, True)
        needed = self._modes.topics(self._adoption, self._topics.listed or frozenset())
        above = self._layout.topics
        topics = {(self._layout.topic(topic), Kind.DATA) for topic in needed}
        if self._follow_only(above, topics | ({(above, Kind.CHILDREN)} if old else set())):
            return None
        mode, before = self._modes.mode(self._adoption, self._topics, now_ms, left=self._left), self._now
        share = before.share if mode is before.mode else mode.share_of(consumer_id)
        names = sorted({partition.topic for partition in share or ()})
        owners, marks = self._layout.owners(self._group), self._layout.marks(self._group)
        self._follow_only(owners, {(f"{owners}/{name}", Kind.CHILDREN) for name in names}, scope=LISTS)
        self._owned = {name: owned for name, owned in self._owned.items() if name in names}
        self._follow_only(marks, {(f"{marks}/{name}", Kind.DATA) for name in names})
        if len(self._owned) < len(names):  # a topic's first list is read together with its mark, so at once
            return None
        adoption, seen_ms = self._adoption, now_ms if self._seen_ms is None else self._seen_ms
        now = Neighbours(
            mode=mode,
            share=share,
            since_ms=before.since_ms if before.share is not None or mode is before.mode else seen_ms,
            moved_ms=before.moved_ms if share is before.share else _moved(before, share, seen_ms),
            joined_ms=self._joined_ms,
            free=frozenset(p for p in share or () if p.partition not in self._owned.get(p.topic, ())),
            incarnations={name: number for name in names if (number := self._incarnations.get(name, 0))},
            record_version=self._record_version,
            store=self._store,
            old_store=ZOOKEEPER if adoption is None else adoption.store_name,
            stores=self._stores,
            former=self._former(mode, seen_ms),
            patience_ms=None if adoption is None else adoption.patience_ms,
        )
        self._seen_ms, self._current = None, True
        if now != before:
            self._now = now
            self._wait_for_others()
        return self._now


def _moved(
    before: Neighbours, share: Mapping[TopicPartition, str] | None, seen_ms: int
) -> Mapping[TopicPartition, int]:
    """For each partition that the plan gave to this member and to others later: when that was seen last."""
    if share is None:
        return {}
    return {**before.moved_ms, **dict.fromkeys((before.share or {}).keys() - share.keys(), seen_ms)}


def _notes(node: Node) -> GroupState:
    """What the group's state says of old members. One that cannot be read covers nothing."""
    try:
        state = decode_state(node.data)
    except CorruptError:
        return GroupState(mode=Mode.OBSERVE)
    return GroupState(mode=state.mode, old=state.old, old_as_of=state.old_as_of)  # without the rest, which may be large


def _incarnation(node: Node) -> int:
    try:
        mark = decode_mark(node.data) if node.exists else None
    except CorruptError:
        mark = None
    return 0 if mark is None else mark.incarnation
