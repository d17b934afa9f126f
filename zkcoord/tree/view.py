"""Folds the nodes that were read of one group into its GroupView. Later answers replace earlier ones.

`decoders` decodes single nodes. A node that cannot be parsed never stops the fold. It becomes a member that is not
eligible, a refused command, an owner that is left alone, or a default record, each with an entry in
`GroupNodes.problems` that names the path and who must act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.view import Channel, GroupView, Instance, Member, OffsetSeen, Owner
from zkcoord.errors import CorruptError
from zkcoord.tree import decoders
from zkcoord.tree.copied import now, own
from zkcoord.tree.owners import owners_fold
from zkcoord.tree.paths import EVICTED_MARK, REFUSED_MARK, Address, Layout, Place
from zkcoord.tree.problems import Problems
from zkcoord.tree.record import decode_record
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.state import decode_state
from zkcoord.tree.topic import MarkSeen, decode_mark

V = TypeVar("V")

KNOWN_BEFORE = "what was known before still holds, a group of which nothing was known is left alone"


@dataclass(frozen=True, kw_only=True)
class GroupNodes:
    """One group as it was read: the view, and the values that only writes need."""

    view: GroupView
    parents: frozenset[str] = frozenset()  # existing parents of marks, offsets and instances
    claims: Mapping[TopicPartition, Owner] = field(default_factory=dict)  # existing claims, in a layout with claims
    marks: Mapping[str, MarkSeen] = field(default_factory=dict)  # topic -> the node of its mark
    lists: Mapping[tuple[Place, str], Node] = field(default_factory=dict)
    # (MARK or OFFSETS, topic) -> the list of a topic's owners or offsets
    offsets: Mapping[TopicPartition, OffsetSeen] = field(default_factory=dict)  # those that were looked up
    leftover_versions: Mapping[str, int] | None = None
    # path -> version, of all remaining nodes of the group; None: not listed
    unknown: Mapping[str, str] = field(default_factory=dict)
    # record or state, if nothing was known of it before it could not be read -> why it cannot be read
    problems: Mapping[str, str] = field(default_factory=dict)  # path -> what is wrong with it, and who must act


def unread(group: str, layout: Layout) -> GroupNodes:
    """A group of this layout of which nothing has been read."""
    return GroupNodes(view=GroupView(group=group, adopts=layout.adopts, claims=layout.ownership.claimed))


def fold(before: GroupNodes, nodes: Iterable[Node], layout: Layout) -> GroupNodes:
    """The group after these answers, which replace earlier ones about the same nodes, in order."""
    parsed = ((layout.parse(node.path), node) for node in nodes)
    return fold_parsed(before, [(a, node) for a, node in parsed if a is not None and a.group == before.view.group])


def fold_parsed(before: GroupNodes, nodes: Iterable[tuple[Address, Node]]) -> GroupNodes:
    """Do the same as `fold` for answers with known addresses, all of this group."""
    folder = _Folder(before)
    take_owner = folder.owners.take
    for address, node in nodes:
        if address.place is Place.OWNER:  # there are many
            take_owner(address, node)
        else:
            folder.take(address, node)
    return folder.result()


class _Folder:
    """Collects the changes of one batch. Each mapping is copied once, and only if it changes."""

    # copies of the earlier mappings; None: that mapping has not changed
    _members: dict[str, Member] | None = None
    _channels: dict[str, Channel] | None = None
    _instances: dict[str, Instance] | None = None
    _parents: set[str] | None = None
    _marks: dict[str, MarkSeen] | None = None
    _lists: dict[tuple[Place, str], Node] | None = None
    _offsets: dict[TopicPartition, OffsetSeen] | None = None

    def __init__(self, before: GroupNodes) -> None:
        self._before = before
        self._known = self._view = before.view  # the earlier view; the view with the batch's record and state
        self._unknown = before.unknown
        self._problems = Problems(before.problems)
        self.owners = owners_fold(before.view, before.claims, self._problems)

    def result(self) -> GroupNodes:
        """The group after the batch."""
        nodes, known = self._before, self._known
        view = self.owners.result(self._view)
        if self._unknown is not nodes.unknown:
            unreadable = "; ".join(f"{what}: {why}" for what, why in sorted(self._unknown.items())) or None
            view = fast_replace(view, unreadable=unreadable)
            nodes = fast_replace(nodes, unknown=self._unknown)
        if self._members is not None or self._instances is not None:
            members, instances = now(self._members, known.members), now(self._instances, known.instances)
            view = fast_replace(view, members=members, instances=instances)
        if self._channels is not None:
            view = fast_replace(view, channels=self._channels)
        if self._marks is not None:
            marks = self._marks.items()
            marked = frozenset(topic for topic, seen in marks if seen.mark is not None or seen.unreadable)
            numbers = {topic: seen.mark.incarnation for topic, seen in marks if seen.mark is not None}
            view = fast_replace(view, marked=marked, incarnations=numbers)
            nodes = fast_replace(nodes, marks=self._marks)
        if self._parents is not None:
            nodes = fast_replace(nodes, parents=frozenset(self._parents))
        if self._lists is not None or self._offsets is not None:
            lists, offsets = now(self._lists, nodes.lists), now(self._offsets, nodes.offsets)
            nodes = fast_replace(nodes, lists=lists, offsets=offsets)
        return fast_replace(nodes, view=view, claims=self.owners.claims, problems=self._problems.known)

    def take(self, address: Address, node: Node) -> None:
        """Take in one answer about any node except an owner."""
        match address.place:
            case Place.IDS:
                self._members = self._keep_only(self._members, self._known.members, node)
                if self._view.adopts:
                    changes = 0 if node.stat is None else node.stat.child_changes
                    self._view = fast_replace(self._view, ids_changes=changes)
            case Place.REGISTRATION:
                self._registration(address, node)
            case Place.CHANNELS:
                self._channels = self._keep_only(self._channels, self._known.channels, node)
            case Place.CHANNEL:
                self._channel(address, node)
            case Place.COMMAND:
                self._command(address, node)
            case Place.EVICTED:
                self._evicted(address, node)
            case Place.OFFSET:
                self._offset(address, node)
            case Place.CLAIMS:
                self._parent(node)
                self.owners.take_list(address, node)
            case Place.OFFSETS | Place.MARK if node.kind is Kind.CHILDREN:
                self._lists = own(self._lists, self._before.lists)
                self._lists[address.place, address.name] = node
            case Place.OWNERS | Place.OFFSETS:
                self._parent(node)
            case Place.MARK:
                self._mark(address, node)
            case Place.RECORD:
                self._group_record(node)
            case Place.STATE:
                self._group_state(node)
            case Place.INSTANCES:
                self._instances = self._keep_only(self._instances, self._known.instances, node)
                self._parent(node)
            case Place.INSTANCE:
                self._instance(address, node)

    def _parent(self, node: Node) -> None:
        if self._parents is None:
            self._parents = set(self._before.parents)
        (self._parents.add if node.exists else self._parents.discard)(node.path)

    def _keep_only(self, copy: dict[str, V] | None, known: Mapping[str, V], listed: Node) -> dict[str, V] | None:
        """The copy without entries that are not in the list."""
        gone = now(copy, known).keys() - set(listed.children)
        if gone:
            copy = own(copy, known)
            for each in gone:
                del copy[each]
            self._problems.forget({f"{listed.path}/{each}" for each in gone})
        return copy

    def _unreadable(self, what: str, error: str | None) -> None:
        """Note why the record or the state cannot be read. None: it can be read, or there is none."""
        others = {each: why for each, why in self._unknown.items() if each != what}
        unknown = others if error is None else {**others, what: error}
        if unknown != self._unknown:
            self._unknown = unknown

    def _registration(self, address: Address, node: Node) -> None:
        seen, stat = now(self._members, self._known.members).get(address.name), node.stat
        if seen is not None and stat is not None and (seen.czxid, seen.version) == (stat.czxid, stat.version):
            return  # after a broken link all are read again, and few have changed
        members = self._members = own(self._members, self._known.members)
        if node.stat is None:
            members.pop(address.name, None)
            self._problems.note(node.path, None)
            return
        members[address.name] = member = decoders.member_of(address.name, node)
        self._problems.note(
            node.path, member.unreadable and f"{member.unreadable}: its owner must register again correctly"
        )

    def _channel(self, address: Address, node: Node) -> None:
        seen = now(self._channels, self._known.channels).get(address.name)
        if seen is not None and node.kind is Kind.DATA and decoders.has_status(seen, node):
            return  # as above
        channels = self._channels = own(self._channels, self._known.channels)
        if node.stat is None:
            # watched, and perhaps read later than the data in the same batch: it decides
            if node.kind is Kind.CHILDREN:
                channels.pop(address.name, None)
                self._problems.forget({node.path})
            return
        known = channels.get(address.name)
        # created again under its name: nothing of the former channel counts
        if known is None or known.czxid != node.stat.czxid:
            known = Channel(consumer_id=address.name, version=node.stat.version, czxid=node.stat.czxid)
        if node.kind is Kind.CHILDREN:
            names = set(node.children)
            if EVICTED_MARK not in names:
                self._problems.note(f"{node.path}/{EVICTED_MARK}", None)
            for command in known.commands if self._problems.known else ():
                if command.sequence not in names:
                    self._problems.note(f"{node.path}/{command.sequence}", None)
            channels[address.name] = fast_replace(
                known,
                commands=tuple(c for c in known.commands if c.sequence in names),
                evicted_ms=known.evicted_ms if EVICTED_MARK in names else None,
                evicted_owned=known.evicted_owned if EVICTED_MARK in names else frozenset(),
                refused_mark=REFUSED_MARK in names,
            )
            return
        channels[address.name], problem = decoders.with_status(known, node)
        self._problems.note(node.path, problem)

    def _command(self, address: Address, node: Node) -> None:
        channels = self._channels = own(self._channels, self._known.channels)
        channel = channels.get(address.name)
        if channel is None:
            return
        others = channel.commands
        if others and others[-1].sequence >= address.item:  # it usually is the newest: thousands may come before it
            others = tuple(c for c in others if c.sequence != address.item)
        if node.stat is None:
            channels[address.name] = fast_replace(channel, commands=others)
            self._problems.note(node.path, None)
            return
        command = decoders.outstanding(address.item, node)
        commands = (*others, command)
        if others and others[-1].sequence > command.sequence:
            commands = tuple(sorted(commands, key=lambda c: c.sequence))
        channels[address.name] = fast_replace(channel, commands=commands)
        self._problems.note(
            node.path, command.error and f"{command.error}: its sender or its consumer must be upgraded"
        )

    def _evicted(self, address: Address, node: Node) -> None:
        channels = self._channels = own(self._channels, self._known.channels)
        channel = channels.get(address.name)
        if channel is None:
            return
        channels[address.name], problem = decoders.with_mark(channel, node)
        self._problems.note(node.path, problem)

    def _mark(self, address: Address, node: Node) -> None:
        topic = address.name
        marks = self._marks = own(self._marks, self._before.marks)
        known = marks.pop(topic, None)
        self._problems.note(node.path, None)
        if node.stat is None:
            if known is not None:
                self.owners.unmarked(topic)
            return
        try:
            marks[topic] = MarkSeen(decode_mark(node.data), node.stat.version)
        except CorruptError as error:
            marks[topic] = MarkSeen(None, node.stat.version, unreadable=True)
            why = "an operator must mend it, or set it empty if it is the same topic still"
            self._problems.note(node.path, f"{error}: {why}; until then nothing of the topic is given to anybody")

    def _offset(self, address: Address, node: Node) -> None:
        partition = address.partition
        if partition is None:
            return
        offsets = self._offsets = own(self._offsets, self._before.offsets)
        offsets.pop(partition, None)
        if node.stat is not None:
            offsets[partition] = decoders.offset_seen(node.data, node.stat.version)

    def _instance(self, address: Address, node: Node) -> None:
        instances = self._instances = own(self._instances, self._known.instances)
        if node.stat is None:
            instances.pop(address.name, None)
            return
        instances[address.name] = decoders.instance_of(node.data, node.stat)

    def _group_record(self, node: Node) -> None:
        if node.stat is None:
            self._unreadable("record", None)
            self._problems.note(node.path, None)
            self._view = fast_replace(self._view, record=DEFAULT_RECORD, record_version=None, answerable=True)
            return
        self._view = fast_replace(self._view, record_version=node.stat.version)
        try:
            record = decode_record(node.data)
        except CorruptError as error:
            if self._before.view.record_version is None or "record" in self._unknown:
                self._unreadable("record", str(error))
            self._problems.note(node.path, f"{error}: an operator must mend it; {KNOWN_BEFORE}")
            self._view = fast_replace(self._view, answerable=False)
            return
        self._problems.note(node.path, decoders.not_carried_out(record))
        self._unreadable("record", None)
        self._view = fast_replace(self._view, record=record, answerable=True)

    def _group_state(self, node: Node) -> None:
        if node.stat is None:
            self._unreadable("state", None)
            self._problems.note(node.path, None)
            self._view = fast_replace(self._view, state_version=None)
            return
        self._view = fast_replace(self._view, state_version=node.stat.version)
        try:
            state = decode_state(node.data)
        except CorruptError as error:
            if self._before.view.state_version is None or "state" in self._unknown:
                self._unreadable("state", str(error))
            self._problems.note(node.path, f"{error}: an operator must restore it; {KNOWN_BEFORE}")
            return
        self._unreadable("state", None)
        self._problems.note(node.path, None)
        self._view = fast_replace(self._view, state=state)
