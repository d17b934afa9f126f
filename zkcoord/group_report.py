"""Reads what the tools show: the tree's schema and coordinator, and one group, with a few requests whatever its size.

Everything here may change while it is read. What is shown of a group is therefore of several moments, unless two
readings in a row are equal: then nothing changed between them (each node's version is part of what is compared).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from zkcoord.core.adoption import Adoption
from zkcoord.core.assignors import ASSIGNORS, Assignor
from zkcoord.core.coordinate import decide
from zkcoord.core.decisions import FoundGroup, RejectMember
from zkcoord.core.eligibility import PROTOCOLS, set_aside
from zkcoord.core.memory import Memory
from zkcoord.core.mode import GroupMode
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.phase import pending, planned_phase
from zkcoord.core.record import PAUSE, RESET, GroupRecord
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
"""Children of the root: ZooKeepers with more are rare, and a user who forgot a chroot waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReport:
    """Who serves, and since when: `coordinator` None = nobody; `epoch_since_ms` is the server's wall clock."""

    layout: Layout
    coordinator: str | None
    epoch: int | None
    epoch_since_ms: int | None
    brokers: str | None = None  # how Kafka's brokers leave ZooKeeper, where somebody must act, and what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A static member that is away, and what waits for it.

    The hold runs on the clock of the coordinator that serves, from its first sight of the absence. A tool knows when
    the note of it was written (`noted_ms`, by the server's wall clock; None: there is no note), and that a coordinator
    that was elected later began anew.
    """

    consumer: str  # its last id
    partitions: tuple[TopicPartition, ...]
    hold_ms: int
    noted_ms: int | None

    def until_ms(self, above: TreeReport) -> int | None:
        """Until when its share waits, by the server's wall clock; None: nobody knows, since nobody serves or it is not
        noted yet."""
        if above.coordinator is None or above.epoch_since_ms is None or self.noted_ms is None:
            return None
        return max(self.noted_ms, above.epoch_since_ms) + self.hold_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group as read. `settled`: stable, and a coordinator that read the same would change nothing.

    Nor is it when its record or state cannot be read: a coordinator leaves it alone, whatever should be done.
    """

    view: GroupView
    phase: Phase
    settled: bool
    offsets: Mapping[TopicPartition, int | None]  # None: nobody can read it as an offset
    idle: Mapping[str, str]  # member -> why it is given nothing
    target: Mapping[TopicPartition, str]  # what a coordinator that read the same would want
    awaited: Mapping[str, Awaited]  # static members that are away, by instance
    wishes: Mapping[str, Mapping[str, Any]]  # what people ask of it, as they wrote it
    problems: Mapping[str, str]  # path -> what is wrong with it, and who must act
    deleted: bool  # its offsets were kept, and nobody has joined it or decided anything about it since

    @property
    def paused(self) -> bool:
        """True while a pause is requested, carried out or not."""
        return not {PAUSE, RESET}.isdisjoint(self.view.record.requests)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """All that the group has to do with: of its topics, owned, or with an offset; in order."""
        subscribed = {TopicPartition(topic, n) for topic, numbers in self.view.topics.items() for n in numbers}
        return tuple(sorted(subscribed | self.view.owners.keys() | self.offsets.keys()))

    def moves(self) -> list[tuple[TopicPartition, str, str | None]]:
        """Partitions that the target has elsewhere: from whom ("": nobody alive), to whom (None: to nobody)."""
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
    """Say how Kafka's brokers leave ZooKeeper. The coordinator has seen for how long their controllers were silent."""
    if move is not None and not layout.mirrored:
        yield WORDS[move]
    if move is BrokersMove.MOVING and coordinator is not None and may_name_a_group(coordinator):
        [own] = tree.read([Read(f"{CANDIDATES}/{coordinator}")])
        if says_silent(own.data):
            yield SILENT


def _no_tree(tree: BlockingTree, address: str) -> str:
    """Say what to do. If Kafka is in another chroot, it is to be given: a tree that is made here would see no topic."""
    found: list[str] = []
    with suppress(UsageError):  # its ACL hides the root, or what is below
        root, here = tree.read([Read("/", Kind.CHILDREN), Read(KAFKA)])
        places = [] if here.exists else [f"/{name}" for name in root.children[:CHROOTS_LOOKED_AT]]
        nodes = tree.read([Read(f"{place}{BROKERS}") for place in places]) if places else ()
        found = [place for place, node in zip(places, nodes, strict=True) if node.exists]
    if found:
        told = f"no zkcoord tree at {address}, but Kafka's brokers are below {some(found)}"
        return f"{told}: give that chroot, as {address}{found[0]}"
    return f"no zkcoord tree at {address}: start a coordinator, or run `zkcoord migrate upgrade`"


def refuse_newer(schema: Schema) -> None:
    """SchemaError for a tree at a revision that this program does not know."""
    if schema.revision not in [revision.revision for revision in history()]:
        raise SchemaError(f"the tree is at revision {schema.revision}, newer than this program: use the newer one")


def group_names(tree: BlockingTree, layout: Layout) -> tuple[str, ...]:
    """All groups, in order: of what an old tool removed the record is left, and is to be found for its deletion."""
    folders, records = tree.read([Read(layout.groups, Kind.CHILDREN), Read(RECORDS, Kind.CHILDREN)])
    return tuple(sorted({*folders.children, *records.children}))


def deleted_groups(tree: BlockingTree, layout: Layout, names: Sequence[str]) -> frozenset[str]:
    """Those of these groups that were deleted and of which only the offsets were kept, as in `GroupReport`."""
    reads = [
        read
        for name in names
        for read in (Read(layout.state(name)), Read(layout.record(name)), Read(layout.ids(name), Kind.CHILDREN))
    ]
    nodes = iter(tree.read(reads) if reads else ())
    found: set[str] = set()
    for name, state, record, ids in zip(names, nodes, nodes, nodes, strict=True):
        with suppress(CorruptError):  # such a group is shown, and its description says what must be mended
            if _deleted(decode_state(state.data).deleted, decode_record(record.data), ids.children):
                found.add(name)
    return frozenset(found)


def _deleted(by_state: bool, record: GroupRecord, members: Collection[str]) -> bool:
    """A member that has just joined counts before the coordinator has seen it; so does what people decided since."""
    return by_state and not members and record == record.kept


def may_name_a_group(name: str) -> bool:
    """Whether a node can have this name: others than this program name groups, too."""
    return name not in ("", ".", "..") and "/" not in name and name.isprintable()


def no_such_group(name: str) -> str:
    """What a command says of a group that it does not find."""
    return f"there is no group {name!r}; `zkcoord group list` shows them"


def read_group(tree: BlockingTree, layout: Layout, group: str, *, watch: bool = False) -> GroupReport:
    """One group; UsageError if there is none of that name.

    `watch`: leave watches on the group's lists, its record and its state. Owners change together with one of these.
    """
    nodes = tree.read([Read(layout.group(group)), Read(layout.record(group))]) if may_name_a_group(group) else ()
    if not any(node.exists for node in nodes):
        is_topic = may_name_a_group(group) and tree.read([Read(layout.topic(group))])[0].exists
        hint = f"; {group!r} is a topic: `zkcoord topic describe {group}` shows who reads it" if is_topic else ""
        raise UsageError(no_such_group(group) + hint)
    return _Reading(tree, layout, group, watch=watch).report()


def _assignors(view: GroupView, known: Collection[str] | None) -> dict[str, Assignor]:
    """Those that the coordinator in charge has (`known` None: nobody says it), and all that every program has; in place
    of a user's own the answer that there is: what is owned now.

    Whether that is what the coordinator's assignor answered is told by the digest in the state.
    """
    offered = {name for member in view.members.values() for name in member.assignors}
    return {**dict.fromkeys(offered if known is None else known, lambda given: dict(given.owned)), **ASSIGNORS}


def _awaited(view: GroupView, memory: Memory) -> dict[str, Awaited]:
    """Who is waited for, as a coordinator that has just begun would see it, by instance.

    Without members nothing is assigned, and the share that is remembered waits."""
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
    """One reading of one group: what `tree.reading` names, until nothing new is named; then what that shows of topics,
    brokers and coordinators."""

    def __init__(self, tree: BlockingTree, layout: Layout, group: str, *, watch: bool) -> None:
        self._watch = watch
        self._tree, self._layout, self._group = tree, layout, group
        self._problems: dict[str, str] = {}
        self._topics = KnownTopics(layout)
        self._modes = ModeWatch(group)  # it finds old members only where there can be any

    def report(self) -> GroupReport:
        """Read all of it."""
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
            wishes={name: wish for name, wish in view.record.wish.items() if wish is not None},
            problems={**nodes.problems, **self._problems},
            deleted=_deleted(view.state.deleted, view.record, view.members),
        )

    def _read(self, reads: Iterable[Read]) -> tuple[Node, ...]:
        asked = list(reads)
        return self._tree.read(asked) if asked else ()

    def _read_group(self) -> tuple[GroupNodes, dict[TopicPartition, int | None]]:
        """The group's own nodes, and its offsets."""
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
        """Who stands, in the order in which they count: it is judged as the coordinator in charge judges."""
        leader, listed = self._read([Read(self._layout.coordinator), Read(CANDIDATES, Kind.CHILDREN)])
        nodes = self._read(Read(f"{CANDIDATES}/{name}") for name in listed.children)
        return in_charge(nodes, leader.data.decode("utf-8", "replace"))

    def _whole(self, nodes: GroupNodes, protocols: tuple[int, int]) -> GroupNodes:
        """The group with its whole view."""
        root, listed = self._read([Read(ROOT), Read(self._layout.topics, Kind.CHILDREN)])
        self._topics.listed = frozenset(listed.children) if listed.exists else None
        adoption = nodes.view.record.adoption
        of_plan = self._modes.topics(adoption, self._topics.listed or frozenset())
        nodes = subscribed(nodes, cache(self._taken))
        wanted = needs_of(nodes, of_plan)
        self._read_topics(wanted.topics)
        environment = Environment(
            topics=self._topics,
            racks=self._read_racks() if wanted.racked else {},
            root_czxid=root.stat.czxid if root.stat is not None else 0,
            protocols=protocols,
        )
        nodes, _ = completed(nodes, wanted, environment)
        return replace(nodes, view=replace(nodes.view, mode=self._mode(adoption)))

    def _mode(self, adoption: Adoption | None) -> GroupMode:
        """The group's mode, as if what nobody can read had been there for long: this report sees it only once.

        Nothing is begun beside such a registration at first either, so nothing wrong is told of the group.
        """
        mode = self._modes.mode(adoption, self._topics, 0)
        return mode if mode.grace_ends_ms is None else self._modes.mode(adoption, self._topics, mode.grace_ends_ms)

    def _taken(self, wildcard: Wildcard) -> dict[str, int]:
        """The topics that a wildcard takes, with its threads."""
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
        """The racks of brokers, as a coordinator would know them that takes over now."""
        (listed,) = self._read([Read(self._layout.brokers, Kind.CHILDREN)])
        above = self._layout.brokers
        numbers = {f"{above}/{name}": number for name in listed.children if (number := broker_id(name)) is not None}
        known: dict[int, str | None] = {}
        for node in self._read(Read(path) for path in numbers):
            with suppress(CorruptError):  # as a broker that is away
                if node.exists:
                    known[numbers[node.path]] = decode_broker(node.data).rack
        return known
