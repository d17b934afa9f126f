"""Reads what the tools show: the tree's schema and coordinator, and one group, with a few requests whatever its size.

Everything may change while it is read, so a report of a group may mix several moments. If two readings in a row are
equal, nothing changed between them (the comparison includes each node's version).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

from zkcoord.core.assignors import ASSIGNORS, Assignor
from zkcoord.core.coordinate import decide
from zkcoord.core.decisions import FoundGroup, RejectMember
from zkcoord.core.eligibility import PROTOCOLS, set_aside
from zkcoord.core.memory import Memory
from zkcoord.core.mode import GroupMode
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.phase import pending, planned_phase
from zkcoord.core.record import PAUSE, RESET, GroupRecord
from zkcoord.core.requests import has_been_left
from zkcoord.core.topics import recreated
from zkcoord.core.view import GroupView, Wildcard
from zkcoord.core.words import some
from zkcoord.errors import CorruptError, SchemaError, UsageError
from zkcoord.legacy.mode_watch import ModeWatch
from zkcoord.migrate import BlockingTree, current, history
from zkcoord.tree.broker import broker_id, decode_broker
from zkcoord.tree.brokers_move import READS, SILENT, WORDS, BrokersMove, move_of
from zkcoord.tree.candidate import assignors_of, in_charge, protocol_range, says_silent
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import (
    BROKERS,
    CANDIDATES,
    EPOCH,
    KAFKA,
    RECORDS,
    ROOT,
    Layout,
    Place,
)
from zkcoord.tree.reading import roots, wants
from zkcoord.tree.record import decode_record
from zkcoord.tree.schema import Schema, decode_epoch
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.state import decode_state, digest
from zkcoord.tree.topic_filter import taken
from zkcoord.tree.view import GroupNodes, fold, unread
from zkcoord.tree.whole_view import Environment, completed, needs_of, subscribed

CHROOTS_LOOKED_AT = 100
"""How many children of the root are searched for Kafka. More are rare, and a user who forgot a chroot waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReport:
    """The tree and its coordinator (None: none serves); `epoch_since_ms`: since when, by ZooKeeper's wall clock."""

    layout: Layout
    coordinator: str | None
    epoch: int | None
    epoch_since_ms: int | None
    brokers: str | None = None  # how Kafka's brokers leave ZooKeeper, where somebody must act, and what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A static member that is away, and the partitions that wait for it.

    The coordinator that serves measures the hold by its own clock, from the moment when it saw the absence. A tool
    knows only when the absence was noted in the state (`noted_ms`, by ZooKeeper's wall clock; None: it is not), and
    that a coordinator that was elected later has begun the hold again.
    """

    consumer: str  # the id of its last registration
    partitions: tuple[TopicPartition, ...]
    hold_ms: int
    noted_ms: int | None

    def until_ms(self, above: TreeReport) -> int | None:
        """Until when its share waits, by ZooKeeper's wall clock. None: not known, since no coordinator serves, or the
        absence is not noted yet."""
        if above.coordinator is None or above.epoch_since_ms is None or self.noted_ms is None:
            return None
        return max(self.noted_ms, above.epoch_since_ms) + self.hold_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group as read. `settled`: the group is stable, and a coordinator that read the same would change nothing.

    A group whose record or state cannot be read is not settled, since a coordinator does not touch it.
    """

    view: GroupView
    phase: Phase
    settled: bool
    offsets: Mapping[TopicPartition, int | None]  # None: the node holds no readable offset
    idle: Mapping[str, str]  # member -> why it is given nothing
    target: Mapping[TopicPartition, str]  # the target that a coordinator that read the same would compute
    awaited: Mapping[str, Awaited]  # static members that are away, by instance
    problems: Mapping[str, str]  # path -> what is wrong with it, and who must act
    deleted: bool  # it was deleted, its offsets were kept, and no member or operator's decision has come since

    @property
    def paused(self) -> bool:
        """True while a pause (or a reset, which pauses) is requested, even if it is not carried out yet."""
        return not {PAUSE, RESET}.isdisjoint(self.view.record.requests)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions of the group's topics, those with an owner, and those with an offset; in order."""
        subscribed = {TopicPartition(topic, n) for topic, numbers in self.view.topics.items() for n in numbers}
        return tuple(sorted(subscribed | self.view.owners.keys() | self.offsets.keys()))

    def moves(self) -> list[tuple[TopicPartition, str, str | None]]:
        """Return each partition that the target moves, its living owner ("": none), and its new owner (None: none)."""
        if self.view.observed or self.view.state_version is None or not self.view.mode.settled:
            return []  # there is no target, or no coordinator has seen the group yet
        living = self.view.living_threads()
        owned = {p: owner.thread for p, owner in self.view.owners.items() if owner.thread in living}
        return [
            (p, owned.get(p, ""), self.target.get(p))
            for p in sorted(owned.keys() | self.target.keys())
            if owned.get(p) != self.target.get(p)
        ]

    def commands(self) -> int:
        """How many commands are outstanding."""
        return sum(len(channel.commands) for channel in self.view.channels.values())


def read_tree(tree: BlockingTree, address: str) -> TreeReport:
    """The tree's layout and coordinator; SchemaError if there is no tree, or one that this program cannot read.

    CorruptError if nobody can read the schema or the epoch.
    """
    schema = current(tree)
    if schema is None:
        raise SchemaError(_no_tree(tree, address))
    refuse_newer(schema)
    layout = schema.place
    leader, epoch, *of_brokers = tree.read([Read(layout.coordinator), Read(EPOCH), *READS])
    coordinator = leader.data.decode("utf-8", "backslashreplace") if leader.exists else None
    number: int | None = None
    try:
        number = decode_epoch(epoch.data) if epoch.exists else None
    except CorruptError as error:
        raise CorruptError(f"{EPOCH}: {error}; an operator must restore it") from error
    return TreeReport(
        layout=layout,
        coordinator=coordinator,
        epoch=number,
        epoch_since_ms=epoch.stat.mtime_ms if epoch.stat else None,
        brokers=". ".join(_of_brokers(tree, layout, coordinator, move_of(of_brokers))) or None,
    )


def _of_brokers(tree: BlockingTree, layout: Layout, coordinator: str | None, move: BrokersMove | None) -> Iterator[str]:
    """Say how Kafka's brokers leave ZooKeeper. Only the coordinator knows for how long KRaft's controllers were
    silent."""
    if move is not None and not layout.mirrored:
        yield WORDS[move]
    if move is BrokersMove.MOVING and coordinator is not None and may_name_a_group(coordinator):
        [own] = tree.read([Read(f"{CANDIDATES}/{coordinator}")])
        if says_silent(own.data):
            yield SILENT


def _no_tree(tree: BlockingTree, address: str) -> str:
    """Say what to do. If Kafka is below another chroot, the user must give that: a tree made here would have no
    topics."""
    found: list[str] = []
    with suppress(UsageError):  # an ACL hides the root or a node below it
        root, here = tree.read([Read("/", Kind.CHILDREN), Read(KAFKA)])
        places = [] if here.exists else [f"/{name}" for name in root.children[:CHROOTS_LOOKED_AT]]
        nodes = tree.read([Read(f"{place}{BROKERS}") for place in places]) if places else ()
        found = [place for place, node in zip(places, nodes, strict=True) if node.exists]
    if found:
        told = f"no zkcoord tree at {address}, but Kafka's brokers are below {some(found)}"
        return f"{told}: give that chroot, as {address}{found[0]}"
    return f"no zkcoord tree at {address}: start a coordinator, or run `zkcoord migrate upgrade`"


def refuse_newer(schema: Schema) -> None:
    """Raise SchemaError for a tree at a revision that this program does not know."""
    if schema.revision not in [revision.revision for revision in history()]:
        raise SchemaError(f"the tree is at revision {schema.revision}, newer than this program: use the newer one")


def group_names(tree: BlockingTree, layout: Layout) -> tuple[str, ...]:
    """Return all groups, in order. A group that an old tool removed still has its record, and is listed to be
    deleted."""
    folders, records = tree.read([Read(layout.groups, Kind.CHILDREN), Read(RECORDS, Kind.CHILDREN)])
    return tuple(sorted({*folders.children, *records.children}))


def deleted_groups(tree: BlockingTree, layout: Layout, names: Sequence[str]) -> frozenset[str]:
    """Return those of these groups that were deleted while their offsets were kept (`GroupReport.deleted`)."""
    reads = [
        read
        for name in names
        for read in (Read(layout.state(name)), Read(layout.record(name)), Read(layout.ids(name), Kind.CHILDREN))
    ]
    nodes = iter(tree.read(reads) if reads else ())
    found: set[str] = set()
    for name, state, record, ids in zip(names, nodes, nodes, nodes, strict=True):
        with suppress(CorruptError):  # such a group is not left out, and its description says what must be repaired
            if _deleted(decode_state(state.data).deleted, decode_record(record.data), ids.children):
                found.add(name)
    return frozenset(found)


def _deleted(by_state: bool, record: GroupRecord, members: Collection[str]) -> bool:
    """True if a group is deleted, and no member or operator's decision has come since, seen by a coordinator or not."""
    return by_state and not members and record == record.kept


def may_name_a_group(name: str) -> bool:
    """True if a node can have this name. Other programs name groups, too, so this allows more than zkcoord does."""
    return name not in ("", ".", "..") and "/" not in name and name.isprintable()


def no_such_group(name: str) -> str:
    """Return the message about a group that does not exist."""
    return f"there is no group {name!r}; `zkcoord group list` shows them"


def has_group(tree: BlockingTree, layout: Layout, group: str) -> bool:
    """True if there is a group of this name: consumers have made it, or it has a record of zkcoord's."""
    paths = [layout.group(group), layout.record(group)] if may_name_a_group(group) else []
    return bool(paths) and any(node.exists for node in tree.read([Read(path) for path in paths]))


def read_group(tree: BlockingTree, layout: Layout, group: str, *, watch: bool = False) -> GroupReport:
    """Read one group; UsageError if there is none of that name.

    `watch`: leave watches on the group's lists, record and state. Owners change only together with one of these.
    """
    if not has_group(tree, layout, group):
        is_topic = may_name_a_group(group) and tree.read([Read(layout.topic(group))])[0].exists
        hint = f"; {group!r} is a topic: `zkcoord topic describe {group}` shows who reads it" if is_topic else ""
        raise UsageError(no_such_group(group) + hint)
    return _Reading(tree, layout, group, watch=watch).report()


def _assignors(view: GroupView, known: Collection[str] | None) -> dict[str, Assignor]:
    """Return zkcoord's assignors, and substitutes for users' own ones: those that the coordinator in charge has, or if
    that is not known (None), those that members offer. A substitute returns what is owned now.

    The digest in the state shows whether that is what the coordinator's assignor returned.
    """
    offered = {name for member in view.members.values() for name in member.assignors}
    return {**dict.fromkeys(offered if known is None else known, lambda given: dict(given.owned)), **ASSIGNORS}


def _awaited(view: GroupView, memory: Memory) -> dict[str, Awaited]:
    """Return instance -> static member that is waited for, as a new coordinator would see it.

    In a group without members nothing is assigned; the share that the state remembers waits."""
    shares: dict[str, list[TopicPartition]] = {}
    for partition, thread in sorted(memory.target.reserved.items()):
        shares.setdefault(consumer_of(thread), []).append(partition)
    return {
        member.instance: Awaited(
            consumer=member.consumer_id,
            partitions=tuple(shares.get(member.consumer_id, ()) if view.members else sorted(known.share)),
            hold_ms=member.hold_ms,
            noted_ms=known.written_ms if known.away else None,
        )
        for member in memory.static_timers.held(view, 0)
        if member.instance is not None
        for known in [view.instances[member.instance]]
    }


class _Reading:
    """One reading of one group. It reads the nodes that `tree.reading` names until it names no more, then the topics,
    brokers and coordinators that these need."""

    def __init__(self, tree: BlockingTree, layout: Layout, group: str, *, watch: bool) -> None:
        self._watch = watch
        self._tree, self._layout, self._group = tree, layout, group
        self._problems: dict[str, str] = {}
        self._topics = KnownTopics(layout)
        self._modes = ModeWatch(group)  # it finds old members only in a layout that can have some

    def report(self) -> GroupReport:
        """Read everything, and return the report."""
        nodes, offsets = self._read_group()
        candidates = self._read_candidates()
        nodes = self._whole(nodes, protocol_range(candidates, PROTOCOLS))
        view = nodes.view
        known = assignors_of(candidates[0].data) if candidates else None
        decided = decide(view, Memory(), 0, digest, _assignors(view, known))
        decisions, memory = decided.decisions, decided.memory
        found = [d for d in decisions if isinstance(d, FoundGroup)]
        now = planned_phase(view, memory.target, memory.difference.value.owning, found)
        if now in (Phase.STABLE, Phase.AWAITING_MEMBER) and (memory.target.waiting or recreated(view)):
            now = Phase.PREPARING_REBALANCE  # more moves are to come, or a topic's earlier incarnation is dropped
        rejected = {d.consumer_id: d.why for d in decisions if isinstance(d, RejectMember)}
        return GroupReport(
            view=view,
            phase=now,
            settled=now is Phase.STABLE and not any(map(pending, decisions)) and view.unreadable is None,
            offsets=offsets,
            idle=set_aside(view, rejected) | rejected,
            target=memory.target.assignment,
            awaited=_awaited(view, memory),
            problems={**nodes.problems, **self._problems},
            deleted=_deleted(view.state.deleted, view.record, view.members),
        )

    def _read(self, reads: Iterable[Read]) -> tuple[Node, ...]:
        asked = list(reads)
        return self._tree.read(asked) if asked else ()

    def _read_group(self) -> tuple[GroupNodes, dict[TopicPartition, int | None]]:
        """Read the group's own nodes, and its offsets."""
        layout, offsets = self._layout, dict[TopicPartition, int | None]()
        nodes = unread(self._group, layout)
        watch = self._watch
        reads = [Read(w.path, w.kind, watch and (w.watch or w.by_writes)) for w in roots(self._group, layout)]
        reads.append(Read(layout.offsets(self._group), Kind.CHILDREN))
        while reads:
            answers = self._read(reads)
            nodes = fold(nodes, answers, layout)
            for node in answers:
                address = layout.parse(node.path)
                if address is not None and address.place is Place.OFFSET and address.partition is not None:
                    offsets[address.partition] = self._offset(node)
                elif address is not None and layout.adopts:
                    self._modes.take(address, node)
            reads = wants(answers, layout, watch=watch)
        return nodes, offsets

    def _offset(self, node: Node) -> int | None:
        try:
            return decode_offset(node.data) if node.exists else None
        except CorruptError as error:
            self._problems[node.path] = f"{error}: an operator must set it to a number"
            return None

    def _read_candidates(self) -> list[Node]:
        """Read the candidates; the coordinator in charge comes first, since its abilities count."""
        leader, listed = self._read([Read(self._layout.coordinator), Read(CANDIDATES, Kind.CHILDREN)])
        nodes = self._read(Read(f"{CANDIDATES}/{name}") for name in listed.children)
        return in_charge(nodes, leader.data.decode("utf-8", "replace"))

    def _whole(self, nodes: GroupNodes, protocols: tuple[int, int]) -> GroupNodes:
        """Return the group with its complete view."""
        root, listed = self._read([Read(ROOT), Read(self._layout.topics, Kind.CHILDREN)])
        self._topics.listed = frozenset(listed.children) if listed.exists else None
        record = nodes.view.record
        of_plan = self._modes.topics(record.adoption, self._topics.listed or frozenset())
        nodes = subscribed(nodes, cache(self._taken))
        wanted = needs_of(nodes, of_plan)
        self._read_topics(wanted.topics)
        environment = Environment(
            topics=self._topics,
            racks=self._read_racks() if wanted.racked else {},
            root_czxid=root.stat.czxid if root.stat is not None else 0,
            protocols=protocols,
            mode=self._mode(record),
        )
        return completed(nodes, wanted, environment)[0]

    def _mode(self, record: GroupRecord) -> GroupMode:
        """Return the group's mode. A report reads the group once, so it takes each unreadable registration as old. That
        is not wrong for a new one: a coordinator begins nothing beside it until its grace period is over."""
        at = partial(self._modes.mode, record.adoption, self._topics, left=has_been_left(record))
        mode = at(now_ms=0)
        return mode if mode.grace_ends_ms is None else at(now_ms=mode.grace_ends_ms)

    def _taken(self, wildcard: Wildcard) -> dict[str, int]:
        """Return topic -> threads for the topics that a wildcard takes."""
        topics = taken(wildcard.regex, sorted(self._topics.listed or ()), black_list=wildcard.black_list)
        return dict.fromkeys(topics, wildcard.threads)

    def _read_topics(self, topics: Collection[str]) -> None:
        for node in self._read(Read(self._layout.topic(topic)) for topic in sorted(topics)):
            try:
                if self._topics.take(node) is None:
                    self._problems[node.path] = "there is no such topic: create it, or correct the subscription"
            except CorruptError as error:
                self._problems[node.path] = f"{error}: the broker or an operator must mend it"

    def _read_racks(self) -> dict[int, str | None]:
        """Return broker -> rack, as a coordinator that takes over now would know it."""
        (listed,) = self._read([Read(self._layout.brokers, Kind.CHILDREN)])
        above = self._layout.brokers
        numbers = {f"{above}/{name}": number for name in listed.children if (number := broker_id(name)) is not None}
        known: dict[int, str | None] = {}
        for node in self._read(Read(path) for path in numbers):
            with suppress(CorruptError):  # an unreadable broker counts as one that is away
                if node.exists:
                    known[numbers[node.path]] = decode_broker(node.data).rack
        return known
