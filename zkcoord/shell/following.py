"""Which nodes of a group a coordinator follows: every answer says what else to read. The tree decides, not the events.

Watched are the lists (members, channels, each channel's commands) and the group's record. Owners, registrations,
commands and statuses are not: they change only together with one of the lists, or by an own write. Read in the order
ids, owners, channels (design, section 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import EVICTED_MARK, Layout, Place
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.view import UNREADABLE_OWNER, GroupNodes, empty, fold


@dataclass(slots=True)
class Following:
    """One group under watch. Invariant: what is wanted is what `nodes` names, and nothing else of this group."""

    group: str
    layout: Layout
    tracker: Tracker
    nodes: GroupNodes
    topics_read: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    _owners: set[TopicPartition] = field(default_factory=set)
    _listed: set[str] = field(default_factory=set)  # topics whose owner nodes were listed
    _sent: dict[str, set[TopicPartition]] = field(default_factory=dict)
    # consumer -> what own commands named that were not seen in its channel yet: obeyed before anybody looked, perhaps

    @classmethod
    def begin(cls, group: str, layout: Layout, tracker: Tracker) -> Following:
        """Follow a group from now on."""
        following = cls(group, layout, tracker, empty(group))
        following._want(layout.ids(group), Kind.CHILDREN, watch=True)
        following._want(layout.owners(group), Kind.CHILDREN)
        following._want(layout.mark(group, "").rstrip("/"), Kind.DATA)
        following._want(layout.offsets(group), Kind.DATA)
        following._want(layout.channels_of(group), Kind.CHILDREN, watch=True)
        following._want(layout.record(group), Kind.DATA, watch=True)
        following._want(layout.state(group), Kind.DATA)
        return following

    def end(self) -> None:
        """The group is gone: forget all of it."""
        self.tracker.unwant_scope(self.group)

    def read(self, nodes: Sequence[Node]) -> None:
        """Take answers in, and want what they lead to."""
        before = self.nodes
        self.nodes = fold(before, nodes, self.layout)
        for node in nodes:
            self._follow(before, node)

    def set_topics(self, topics: Mapping[str, tuple[int, ...]]) -> None:
        """The partitions of the topics that members subscribe to, as read."""
        if topics == self.topics_read:
            return
        self.topics_read = topics
        self.nodes = replace(self.nodes, view=replace(self.nodes.view, topics=topics))
        for topic, partitions in topics.items():
            self._want(self.layout.mark(self.group, topic), Kind.DATA)
            self._want(self.layout.topic_offsets(self.group, topic), Kind.DATA)
            self._want_owners(topic, partitions)

    def sent(self, consumer_id: str, partitions: Iterable[TopicPartition]) -> None:
        """An own command for this consumer was sent."""
        self._sent.setdefault(consumer_id, set()).update(partitions)

    def subscribed(self) -> set[str]:
        """Topics that any member subscribes to."""
        return {topic for member in self.nodes.view.members.values() for topic in member.threads}

    def _follow(self, before: GroupNodes, node: Node) -> None:
        address = self.layout.parse(node.path)
        if address is None:
            return
        match address.place, node.kind:
            case Place.IDS, _:
                self._follow_ids(before, node)
            case Place.CHANNELS, _:
                self._follow_channels(before, node)
            case Place.CHANNEL, Kind.CHILDREN:
                self._follow_channel(before, address.name, node)
            case Place.COMMAND, _:
                sent = self._sent.pop(address.name, set())
                if not node.exists:
                    self._touch_owners(sent)
                    self._touch_owners_of({address.name})
            case Place.OWNER, _ if address.item.isdigit():
                owner = self.nodes.view.owners.get(TopicPartition(address.name, int(address.item)))
                unreadable = owner is not None and owner.thread == UNREADABLE_OWNER
                self.tracker.watch(node.path, Kind.DATA, unreadable)  # only an operator can mend it
            case Place.OWNERS, Kind.CHILDREN:
                for topic in sorted(set(node.children) - self._listed):
                    self._listed.add(topic)
                    self._want(f"{node.path}/{topic}", Kind.CHILDREN)
            case Place.MARK, Kind.CHILDREN:
                self._want_owners(address.name, [int(name) for name in node.children if name.isdigit()])

    def _follow_ids(self, before: GroupNodes, node: Node) -> None:
        known = before.view.members.keys()
        for consumer_id in sorted(set(node.children) - known):
            self._want(self.layout.registration(self.group, consumer_id), Kind.DATA)
        gone = known - set(node.children)
        for consumer_id in gone:
            self.tracker.unwant(self.layout.registration(self.group, consumer_id))
            self.tracker.touch(self.layout.channel(self.group, consumer_id), Kind.DATA)
        if gone:
            self._touch_owners_of(gone)

    def _follow_channels(self, before: GroupNodes, node: Node) -> None:
        known = before.view.channels.keys()
        for consumer_id in sorted(set(node.children) - known):
            path = self.layout.channel(self.group, consumer_id)
            self._want(path, Kind.CHILDREN, watch=True)
            self._want(path, Kind.DATA)
        for consumer_id in known - set(node.children):
            path = self.layout.channel(self.group, consumer_id)
            self.tracker.unwant(path, Kind.CHILDREN)
            self.tracker.unwant(path, Kind.DATA)
            self.tracker.unwant(f"{path}/{EVICTED_MARK}")
            for command in before.view.channels[consumer_id].commands:
                self.tracker.unwant(f"{path}/{command.sequence}")

    def _follow_channel(self, before: GroupNodes, consumer_id: str, node: Node) -> None:
        channel = before.view.channels.get(consumer_id)
        commands = {command.sequence: command for command in channel.commands} if channel else {}
        names = set(node.children)
        for name in sorted(names):
            if name.isdigit() or name == EVICTED_MARK:
                self._want(f"{node.path}/{name}", Kind.DATA)
        for sequence, command in commands.items():
            if sequence in names:
                if channel is not None and not channel.refused_mark and "refused" in names:
                    self.tracker.touch(f"{node.path}/{sequence}", Kind.DATA)
                continue
            self.tracker.unwant(f"{node.path}/{sequence}")
            self.tracker.touch(node.path, Kind.DATA)
            if command.threads is None:
                self._touch_owners_of({consumer_id})
            else:
                self._touch_owners(command.threads)
        if EVICTED_MARK not in names:
            self.tracker.unwant(f"{node.path}/{EVICTED_MARK}")
        if not any(name.isdigit() for name in names):
            self._touch_owners(self._sent.pop(consumer_id, set()))

    def _touch_owners(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in list(partitions):
            self.tracker.touch(self.layout.owner(self.group, partition), Kind.DATA)

    def _touch_owners_of(self, consumers: Set[str]) -> None:
        owners = self.nodes.view.owners.items()
        self._touch_owners(p for p, owner in owners if owner.thread and consumer_of(owner.thread) in consumers)

    def _want_owners(self, topic: str, partitions: Iterable[int]) -> None:
        for number in partitions:
            partition = TopicPartition(topic, number)
            if partition not in self._owners:
                self._owners.add(partition)
                self._want(self.layout.owner(self.group, partition), Kind.DATA)

    def _want(self, path: str, kind: Kind, *, watch: bool = False) -> None:
        self.tracker.want(path, kind, watch=watch, scope=self.group)
