"""Folds the nodes that were read of one group into its GroupView. Later answers replace earlier ones.

`decoders` decodes single nodes. A node that nobody can parse never stops the fold: it becomes a member
without eligibility, a refused command, a free owner that is left alone, a default record, each with a line in
`GroupNodes.problems` that names the path and who must act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.view import SESSION_TIMEOUT_MS, Channel, GroupView, OffsetSeen, Owner
from zkcoord.errors import CorruptError
from zkcoord.tree.decoders import (
    instance_of,
    member_of,
    not_carried_out,
    offset_seen,
    outstanding,
    with_status,
)
from zkcoord.tree.evicted import Evicted, decode_evicted
from zkcoord.tree.ownership import UNREADABLE_OWNER, is_draft_stop, owner_of
from zkcoord.tree.paths import EVICTED_MARK, REFUSED_MARK, Address, Layout, Place, parents
from zkcoord.tree.record import decode_record
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.state import decode_state
from zkcoord.tree.topic import MarkSeen, decode_mark

KNOWN_BEFORE = "what was known before still holds, a group of which nothing was known is left alone"


@dataclass(frozen=True, kw_only=True)
class GroupNodes:
    """One group as read: the view, and what only writes need."""

    view: GroupView
    parents: frozenset[str] = frozenset()  # parents of marks, offsets and instances that stand
    claims: Mapping[TopicPartition, Owner] = field(default_factory=dict)  # where owners are claims: those that stand
    marks: Mapping[str, MarkSeen] = field(default_factory=dict)  # topic -> its mark's node
    lists: Mapping[str, Node] = field(default_factory=dict)  # of a topic's owners or offsets, by path
    offsets: Mapping[TopicPartition, OffsetSeen] = field(default_factory=dict)  # of topics that were looked up
    leftover_versions: Mapping[str, int] | None = None  # by path, of all that the group has left; None: not listed
    problems: Mapping[str, str] = field(default_factory=dict)  # path -> what is wrong with it, and who must act


def empty(group: str, *, adopts: bool = False, claims: bool = False) -> GroupNodes:
    """A group of which nothing has been read. `adopts`, `claims`: of the layout."""
    return GroupNodes(view=GroupView(group=group, adopts=adopts, claims=claims))


def fold(before: GroupNodes, nodes: Iterable[Node], layout: Layout) -> GroupNodes:
    """The group after these answers; they replace what was known of their nodes, in their order."""
    parsed = ((layout.parse(node.path), node) for node in nodes)
    return fold_parsed(before, [(a, node) for a, node in parsed if a is not None and a.group == before.view.group])


def fold_parsed(before: GroupNodes, nodes: Iterable[tuple[Address, Node]]) -> GroupNodes:
    """`fold` for answers whose addresses are known, and all of this group."""
    folder = _Folder(before)
    for address, node in nodes:
        if address.place is Place.OWNER:  # there are many
            (folder.claim if before.view.claims else folder.owner)(address, node)
        else:
            folder.take(address, node)
    return folder.result()


class _Folder:
    """Collects the changes of one batch: each map is copied once, and only when it changes."""

    def __init__(self, before: GroupNodes) -> None:
        self._before = before
        self._view = before.view  # with the record and the state of the batch
        self._changes: dict[str, Any] = {}  # of the view's maps and sets
        self._own: dict[str, Any] = {}  # of the nodes' own maps and sets: copies, made when they change
        self._problems = before.problems
        self._draft_stops: Set[TopicPartition] = before.view.draft_stops
        self._dropped: set[str] = set()  # topics whose owners went with their mark, and are still to be taken out

    def result(self) -> GroupNodes:
        """The group after the batch."""
        self._drop()
        if "draft_stops" in self._changes:
            self._changes["draft_stops"] = frozenset(self._draft_stops)
        if "marks" in self._own:
            marks: Mapping[str, MarkSeen] = self._own["marks"]
            marked = frozenset(topic for topic, seen in marks.items() if seen.mark is not None or seen.unreadable)
            self._changes["marked"] = marked
            numbers = {topic: seen.mark.incarnation for topic, seen in marks.items() if seen.mark is not None}
            self._changes["incarnations"] = numbers
        if "parents" in self._own:
            self._own["parents"] = frozenset(self._own["parents"])
        before = self._before
        view = fast_replace(self._view, **self._changes) if self._changes else self._view
        return fast_replace(before, view=view, **self._own)

    def _owned(self, name: str) -> Any:
        """The nodes' map or set of that name, to be changed."""
        if name not in self._own:
            known = getattr(self._before, name)
            self._own[name] = set(known) if isinstance(known, frozenset) else dict(known)
        return self._own[name]

    def take(self, address: Address, node: Node) -> None:
        """Take one answer in, of any node but an owner's."""
        match address.place:
            case Place.IDS:
                self._keep_only("members", node)
            case Place.REGISTRATION:
                self._registration(address, node)
            case Place.CHANNELS:
                self._keep_only("channels", node)
            case Place.CHANNEL:
                self._channel(address, node)
            case Place.COMMAND:
                self._command(address, node)
            case Place.EVICTED:
                self._evicted(address, node)
            case Place.OFFSET:
                self._offset(address, node)
            case Place.CLAIMS:
                self._claims(address, node)
            case Place.OFFSETS | Place.MARK if node.kind is Kind.CHILDREN:
                self._owned("lists")[node.path] = node
            case Place.OWNERS | Place.OFFSETS:
                self._parent(node)
            case Place.MARK:
                self._mark(address, node)
            case Place.RECORD:
                self._group_record(node)
            case Place.STATE:
                self._group_state(node)
            case Place.INSTANCES:
                self._keep_only("instances", node)
                self._parent(node)
            case Place.INSTANCE:
                self._instance(address, node)

    def _parent(self, node: Node) -> None:
        parents = self._owned("parents")
        (parents.add if node.exists else parents.discard)(node.path)

    def _map(self, name: str) -> dict[Any, Any]:
        if name not in self._changes:
            self._changes[name] = dict(getattr(self._before.view, name))
        changed: dict[Any, Any] = self._changes[name]
        return changed

    def _keep_only(self, name: str, listed: Node) -> None:
        known: Mapping[str, Any] = self._changes.get(name, getattr(self._before.view, name))
        gone = known.keys() - set(listed.children)
        if gone:
            left = self._map(name)
            for each in gone:
                del left[each]
            self._forget_problems({f"{listed.path}/{each}" for each in gone})

    def _problem(self, path: str, what: str | None) -> None:
        if what is None and path not in self._problems:
            return
        problems = self._problems = self._owned("problems")
        if what is None:
            del problems[path]
        else:
            problems[path] = what

    def _forget_problems(self, gone: Set[str]) -> None:
        """Forget the problems of these nodes, and of all below them: they are gone."""
        for path in [p for p in self._problems if p in gone or not gone.isdisjoint(parents(p))]:
            self._problem(path, None)

    def _unreadable(self, what: str, error: str | None) -> None:
        before = self._view.unreadable
        if error is not None:
            self._view = replace(self._view, unreadable=f"{what}: {error}")
        elif before is not None and before.startswith(what):
            self._view = replace(self._view, unreadable=None)

    def _registration(self, address: Address, node: Node) -> None:
        members = self._map("members")
        if node.stat is None:
            members.pop(address.name, None)
            self._problem(node.path, None)
            return
        members[address.name] = member = member_of(address.name, node)
        self._problem(node.path, member.unreadable and f"{member.unreadable}: its owner must register again correctly")

    def _channel(self, address: Address, node: Node) -> None:
        channels = self._map("channels")
        if node.stat is None:
            if node.kind is Kind.CHILDREN:  # watched, and perhaps read later than the data beside it: its word counts
                channels.pop(address.name, None)
                self._forget_problems({node.path})
            return
        known = channels.get(address.name)
        if known is None or known.czxid != node.stat.czxid:  # made again under its name: nothing of the former holds
            known = Channel(consumer_id=address.name, version=node.stat.version, czxid=node.stat.czxid)
        if node.kind is Kind.CHILDREN:
            names = set(node.children)
            if EVICTED_MARK not in names:
                self._problem(f"{node.path}/{EVICTED_MARK}", None)
            for command in known.commands if self._problems else ():
                if command.sequence not in names:
                    self._problem(f"{node.path}/{command.sequence}", None)
            channels[address.name] = fast_replace(
                known,
                commands=tuple(c for c in known.commands if c.sequence in names),
                evicted_ms=known.evicted_ms if EVICTED_MARK in names else None,
                evicted_owned=known.evicted_owned if EVICTED_MARK in names else frozenset(),
                refused_mark=REFUSED_MARK in names,
            )
            return
        channels[address.name], problem = with_status(known, node)
        self._problem(node.path, problem)

    def _command(self, address: Address, node: Node) -> None:
        channels = self._map("channels")
        channel = channels.get(address.name)
        if channel is None:
            return
        others = channel.commands
        if others and others[-1].sequence >= address.item:  # as a rule it is the newest: thousands may stand before it
            others = tuple(c for c in others if c.sequence != address.item)
        if node.stat is None:
            channels[address.name] = fast_replace(channel, commands=others)
            self._problem(node.path, None)
            return
        command = outstanding(address.item, node)
        commands = (*others, command)
        if others and others[-1].sequence > command.sequence:
            commands = tuple(sorted(commands, key=lambda c: c.sequence))
        channels[address.name] = fast_replace(channel, commands=commands)
        self._problem(node.path, command.error and f"{command.error}: its sender or its consumer must be upgraded")

    def _evicted(self, address: Address, node: Node) -> None:
        channels = self._map("channels")
        channel = channels.get(address.name)
        if channel is None:
            return
        evicted, wrong = None, None
        if node.stat is not None:
            try:
                evicted = decode_evicted(node.data)
            except CorruptError as error:
                evicted = Evicted(SESSION_TIMEOUT_MS)
                wrong = f"{error}: {SESSION_TIMEOUT_MS} ms are waited in its place; who wrote it must be mended"
        self._problem(node.path, wrong)
        evicted_ms, owned = evicted or (None, frozenset())
        channels[address.name] = fast_replace(channel, evicted_ms=evicted_ms, evicted_owned=owned)

    def owner(self, address: Address, node: Node) -> None:
        """Take in what an owner's node says."""
        partition = address.partition
        if partition is None:
            return
        if partition.topic in self._dropped:
            self._drop()
        known: Owner | None = self._changes.get("owners", self._before.view.owners).get(partition)
        if is_draft_stop(node.data) is not (partition in self._draft_stops):
            stops = self._own_draft_stops()
            (stops.discard if partition in stops else stops.add)(partition)
        owner = None if node.stat is None else owner_of(node.data, node.stat.version)
        if owner is None and known is not None:
            del self._map("owners")[partition]
        if owner is None:
            return
        if owner != known:  # most are read again in vain, and the map of all of them is not copied for that
            self._map("owners")[partition] = owner
        if owner.thread == UNREADABLE_OWNER:
            wrong = f"{node.data[:80]!r} is no thread id"
            act = f"an operator must set it empty, then run `zkcoord group rebalance {self._before.view.group}`"
            self._problem(node.path, f"{wrong}: {act}")
        elif self._problems:
            self._problem(node.path, None)

    def claim(self, address: Address, node: Node) -> None:
        """Take in what a claim's node says."""
        partition = address.partition
        if partition is None:
            return
        if node.stat is not None:
            self._owned("claims")[partition] = owner_of(node.data, node.stat.version)
        elif partition in self._own.get("claims", self._before.claims):
            del self._owned("claims")[partition]

    def _claims(self, address: Address, node: Node) -> None:
        """Take in the list of a topic's claims: what is not in it is nobody's."""
        self._parent(node)
        names, known = frozenset(node.children), self._own.get("claims", self._before.claims)
        gone = [p for p in known if p.topic == address.name and str(p.partition) not in names]
        for partition in gone:
            del self._owned("claims")[partition]

    def _mark(self, address: Address, node: Node) -> None:
        topic, marks = address.name, self._owned("marks")
        known = marks.pop(topic, None)
        self._problem(node.path, None)
        if node.stat is None:
            if known is not None and not self._before.view.claims:  # removed with all that stood below it
                self._dropped.add(topic)
            return
        try:
            marks[topic] = MarkSeen(decode_mark(node.data), node.stat.version)
        except CorruptError as error:
            marks[topic] = MarkSeen(None, node.stat.version, unreadable=True)
            why = "an operator must mend it, or set it empty if it is the same topic still"
            self._problem(node.path, f"{error}: {why}; until then nothing of the topic is given to anybody")

    def _drop(self) -> None:
        """Take out the owners of the topics that were dropped: once for all of them, thousands may be."""
        if not self._dropped:
            return
        owners = self._map("owners")
        for partition in [p for p in owners if p.topic in self._dropped]:
            del owners[partition]
        stops = [p for p in self._draft_stops if p.topic in self._dropped]
        if stops:
            self._own_draft_stops().difference_update(stops)
        self._dropped.clear()

    def _own_draft_stops(self) -> set[TopicPartition]:
        """A copy of the partitions that draft-only members were told to stop, to be changed."""
        if "draft_stops" not in self._changes:
            self._changes["draft_stops"] = self._draft_stops = set(self._draft_stops)
        changed: set[TopicPartition] = self._changes["draft_stops"]
        return changed

    def _offset(self, address: Address, node: Node) -> None:
        partition = address.partition
        if partition is None:
            return
        offsets = self._owned("offsets")
        offsets.pop(partition, None)
        if node.stat is not None:
            offsets[partition] = offset_seen(node.data, node.stat.version)

    def _instance(self, address: Address, node: Node) -> None:
        instances = self._map("instances")
        if node.stat is None:
            instances.pop(address.name, None)
            return
        instances[address.name] = instance_of(node.data, node.stat)

    def _group_record(self, node: Node) -> None:
        if node.stat is None:
            self._view = replace(self._view, record=DEFAULT_RECORD, record_version=None, answerable=True)
            return
        self._view = replace(self._view, record_version=node.stat.version)
        try:
            record = decode_record(node.data)
        except CorruptError as error:
            if self._before.view.record_version is None:
                self._unreadable("record", str(error))
            self._problem(node.path, f"{error}: an operator must mend it; {KNOWN_BEFORE}")
            self._view = replace(self._view, answerable=False)
            return
        self._problem(node.path, not_carried_out(record))
        self._unreadable("record", None)
        self._view = replace(self._view, record=record, answerable=True)

    def _group_state(self, node: Node) -> None:
        if node.stat is None:
            self._view = replace(self._view, state_version=None)
            return
        self._view = replace(self._view, state_version=node.stat.version)
        try:
            state = decode_state(node.data)
        except CorruptError as error:
            if self._before.view.state_version is None:
                self._unreadable("state", str(error))
            self._problem(node.path, f"{error}: an operator must restore it; {KNOWN_BEFORE}")
            return
        self._unreadable("state", None)
        self._problem(node.path, None)
        self._view = replace(self._view, state=state)
