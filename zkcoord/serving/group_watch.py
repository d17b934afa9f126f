"""Follows the nodes of a group: every node that was read names further nodes to read. What is followed depends on the
tree, not on events.

`tree.reading` says which nodes a reading names, in which order they are read, and which are watched. This module
follows the difference between two readings. `channels` follows the nodes below channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat

from zkcoord.core.decisions import (
    ControlMember,
    Decision,
    DeleteClaims,
    DropTopic,
    GrantPartitions,
    LookUpTopic,
    StopFetching,
)
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition, as_partitions
from zkcoord.core.record import REBALANCE
from zkcoord.core.replay import OpenRanges, takers
from zkcoord.core.state import Announced
from zkcoord.core.view import GroupView, Instance, Member, Wildcard
from zkcoord.legacy.mode_watch import ModeWatch
from zkcoord.serving.channels import Channels
from zkcoord.serving.group_listing import USUAL, GroupListing
from zkcoord.serving.owners import OwnerWatch, owner_watch
from zkcoord.serving.topics import TopicTable
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.looked_up import committed, leftovers
from zkcoord.tree.paths import Address, Layout, Place, partition_numbers
from zkcoord.tree.reading import above_partitions, below, first, roots
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.view import GroupNodes, fold_parsed, unread
from zkcoord.tree.whole_view import NO_INPUTS, NO_NEEDS, Environment, Needs, ViewInputs, completed, needs_of, subscribed


@dataclass(slots=True)
class GroupWatch:
    """One group under watch. Invariant: of this group exactly the nodes that `nodes` names are wanted."""

    group: str
    layout: Layout
    tracker: Tracker
    nodes: GroupNodes
    channels: Channels
    owners: OwnerWatch
    needs: Needs = NO_NEEDS
    wildcards: frozenset[Wildcard] = frozenset()
    _instances: Mapping[str, Instance] = field(default_factory=dict)
    _members: Mapping[str, Member] = field(default_factory=dict)
    # invariant: the table was told the topics of these two
    _looking: set[str] = field(default_factory=set)  # topics of which the remaining nodes are read
    _offsets: set[TopicPartition] = field(default_factory=set)
    # invariant: the offsets that are wanted because of `_looking`
    _changes: int = 0  # the table's count of changes when wildcards were last resolved
    _made_of: ViewInputs = NO_INPUTS  # inputs from which the view was made
    _unread: dict[tuple[str, Kind], tuple[Address, Node]] = field(default_factory=dict)
    # answers that wait, one for each node
    _listed: set[str] = field(default_factory=set)  # topics whose owner nodes were listed
    _announced: dict[TopicPartition, tuple[int, Sequence[Announced]]] = field(default_factory=dict)
    # partition -> (version of its owner, -1 without a node; its announced ranges) when its offset was read last.
    # Invariant: the offsets of these partitions are followed
    _takers: frozenset[str] = frozenset()
    # consumers whose statuses are watched, since each tells when the consumer has taken ranges over
    _listing: GroupListing | None = None  # lists what is left of the group, while that is needed
    _opened: OpenRanges = field(default_factory=OpenRanges)
    whole: bool = True  # more than the record is followed: the group is served, or its release was not read yet
    modes: ModeWatch | None = None  # only where groups may have old members
    _of_plan: frozenset[str] = frozenset()  # topics that the old members' plan depends on
    _read_for: str | None = None  # the run of the last requested rebalance, for which everything was read again

    @classmethod
    def begin(cls, group: str, layout: Layout, tracker: Tracker) -> GroupWatch:
        """Follow a group from now on."""
        owners = owner_watch(group, layout, tracker)
        channels = Channels(group, layout, tracker, owners)
        watch = cls(group, layout, tracker, unread(group, layout), channels, owners, whole=not layout.adopts)
        watch.modes = ModeWatch(group) if layout.adopts else None
        tracker.want_all(first(group, layout), group)
        return watch

    def read_when_adopted(self) -> None:
        """Follow the whole group once it is adopted, and before that only its record."""
        if not self.whole and not self.nodes.view.observed:
            self.whole = True
            self.tracker.want_all(roots(self.group, self.layout), self.group)

    def end(self) -> None:
        """Forget the group: it is gone."""
        self.tracker.unwant_scope(self.group)
        self.tracker.patient(self.group, patient=False)

    def add(self, address: Address, node: Node) -> None:
        """Keep an answer until `read_added`. Before a second answer about the same node is kept, the kept ones are
        taken in.

        Answers are taken in together because each taking-in copies the map of all owners, and each multi of a large
        group's start has an answer of its own.
        """
        key = (node.path, node.kind)
        if key in self._unread:
            self.read_added()
        self._unread[key] = (address, node)

    def read_added(self) -> None:
        """Take in the answers that were kept."""
        if self._unread:
            nodes, self._unread = [*self._unread.values()], {}
            self.read(nodes)

    def read(self, nodes: Sequence[tuple[Address, Node]]) -> None:
        """Take in the nodes that were read, each with its address in this group, and want the nodes that they name."""
        before = self.nodes
        if self._listing is not None:
            for _, node in nodes:
                self._listing.take(node)
            nodes = [(address, node) for address, node in nodes if node.kind is USUAL.get(address.place, node.kind)]
        self.nodes = fold_parsed(before, nodes)
        channels, after = self.channels, self.nodes
        channels.begin(nodes)
        for address, node in nodes:
            channels.passed(node)
            wrong = node.path in after.problems
            if wrong or node.path in before.problems:
                self._watch_until_mended(address, node, wrong)
            if address.place is Place.OWNER:  # there are many of these
                if node.path in channels.ended:
                    channels.follow_owner(before, after, address, node)
            else:
                if self.modes is not None:
                    self.modes.take(address, node)
                self._follow(before, address, node)
        channels.end()

    def subscribe(self, table: TopicTable) -> None:
        """Tell the table which topics the group wants. Give each member with a wildcard the topics that the wildcard
        takes now."""
        members, instances = self.nodes.view.members, self.nodes.view.instances
        record, of_plan = self.nodes.view.record, self._of_plan
        if self.modes is not None:
            of_plan = self.modes.topics(record.adoption, table.listed or frozenset())
        same = members is self._members and instances is self._instances and of_plan == self._of_plan
        if same and table.changes == self._changes:
            return
        if members is not self._members:
            self.wildcards = frozenset(m.wildcard for m in members.values() if m.wildcard is not None)
            table.use(self.group, self.wildcards)
        nodes = subscribed(self.nodes, table.threads) if self.wildcards else self.nodes
        if nodes is not self.nodes or not same:
            before, self.nodes, self.needs = self.needs.topics, nodes, needs_of(nodes, of_plan)
            for topic in sorted(self.needs.topics - before):
                self.tracker.want_all(above_partitions(self.group, topic, self.layout), self.group)
            self.owners.subscribe(sorted(self.needs.topics - before))
            table.want(self.group, self.needs.topics)
        self._members, self._instances, self._changes = self.nodes.view.members, instances, table.changes
        self._of_plan = of_plan

    def complete(self, environment: Environment) -> None:
        """Complete the view with topics, racks and looked-up nodes. Follow the owners of partitions that are new in the
        view. Called when all is clean."""
        before = self.nodes.view
        self.nodes, self._made_of = completed(self.nodes, self.needs, environment, self._made_of)
        view = self.nodes.view
        for topic, partitions in view.topics.items() if view.topics is not before.topics else ():
            known = topic in view.marked or not self.layout.owners_below_marks
            if known and before.topics.get(topic) != partitions:
                self.owners.want(_numbered(topic, partitions))
        self._take_leftovers()

    def with_mode(self, table: TopicTable | None, now_ms: int) -> GroupView:
        """The view with the group's mode as it is now."""
        view = self.nodes.view
        if self.modes is None or table is None:
            return view
        mode = self.modes.mode(view.record.adoption, table, now_ms)
        if mode is not view.mode:
            # beside old members nothing is urgent, and they change a list once for every partition
            self.tracker.patient(self.group, patient=not mode.coordinated)
            self.nodes = fast_replace(self.nodes, view=fast_replace(view, mode=mode))
        return self.nodes.view

    def look_up(self, topics: Set[str]) -> None:
        """Read the remaining nodes of these topics, and stop following those of all other topics."""
        for topic in sorted(topics - self._looking):
            for path, *_ in above_partitions(self.group, topic, self.layout):
                self.tracker.want(path, Kind.CHILDREN, scope=self.group)
                self.tracker.touch(path, Kind.CHILDREN)
        if not self._looking <= topics:
            self._look_no_more(self._looking - topics)
        self._looking = set(topics)
        wanted = self._announced.keys() | self.owners.offsets
        if not topics and self.nodes.offsets.keys() - wanted:
            kept = {p: seen for p, seen in self.nodes.offsets.items() if p in wanted}
            self.nodes = fast_replace(self.nodes, offsets=kept)

    def _look_no_more(self, topics: Set[str]) -> None:
        """Forget the remaining nodes of these topics. They are read again when a topic is looked up again."""
        offsets = {topic: self.layout.topic_offsets(self.group, topic) for topic in sorted(topics)}
        lists = {*offsets.values(), *(self.layout.mark(self.group, topic) for topic in topics)}
        self.nodes = fast_replace(self.nodes, lists={p: node for p, node in self.nodes.lists.items() if p not in lists})
        for path in offsets.values():
            self._unwant(path, Kind.CHILDREN)
        for partition in [p for p in self._offsets if p.topic in topics]:
            self._offsets.discard(partition)
            if partition not in self._announced and partition not in self.owners.offsets:
                self._unwant(self.layout.offset(self.group, partition))

    def read_again(self) -> bool:
        """Begin to read everything of the group again if a rebalance is requested; once for each request.

        The reason: owners, registrations and statuses are not watched, and somebody may have edited one. Returns True
        if it began.
        """
        request = self.nodes.view.record.requests.get(REBALANCE)
        run = None if request is None else request.run
        began = run is not None and run != self._read_for
        self._read_for = run
        if began:
            self.tracker.touch_scope(self.group)
        return began

    def _take_leftovers(self) -> None:
        """Put the remaining nodes of the topics that were looked up into the view."""
        found = {topic: leftovers(self.nodes, topic, self.layout) for topic in sorted(self._looking)}
        left = {topic: what for topic, what in found.items() if what is not None}
        for topic, what in left.items():  # watch nodes that an operator is asked to remove
            for path in (self.layout.mark(self.group, topic), self.layout.topic_offsets(self.group, topic)):
                self.tracker.watch(path, Kind.CHILDREN, bool(what.strange))
        if left != self.nodes.view.leftovers:
            self.nodes = fast_replace(self.nodes, view=fast_replace(self.nodes.view, leftovers=left))

    def know_committed(self) -> None:
        """Put the committed offsets of partitions with announced ranges and without a living owner into the view. Read
        those that are unknown.

        Called when everything is clean. Nobody commits such a partition until it is granted, so its offset is read
        once, and again only when other ranges are announced. The latter covers a member that goes on reading under an
        owner that somebody set empty: it commits. Beside old members a zkcoord owner counts until it has committed:
        there the offsets are watched.
        """
        self.nodes = self.owners.know_offsets(self.nodes, self._offsets | self._announced.keys())
        view = self.nodes.view
        self._opened = self._opened.seen(view)
        found = self._opened.found
        if not found and not self._announced:
            return
        self._watch_takers(takers(view, found))
        versions = {p: (view.owners[p].version if p in view.owners else -1, found[p]) for p in found}
        for partition in sorted(self._announced.keys() - versions.keys()):
            del self._announced[partition]
            if partition not in self._offsets and partition not in self.owners.offsets:
                self._unwant(self.layout.offset(self.group, partition))
        new = sorted(p for p, version in versions.items() if self._announced.get(p) != version)
        for partition in new:
            self._announced[partition] = versions[partition]
            path = self.layout.offset(self.group, partition)
            self.tracker.want(path, scope=self.group)
            if partition in view.owners and not view.mode.coordinated:
                self.tracker.watch(path, Kind.DATA, True)
            self.tracker.touch(path)
        known = committed(self.nodes, self._announced)
        if not new and known != view.committed:
            self.nodes = fast_replace(self.nodes, view=fast_replace(view, committed=known))

    def _watch_takers(self, consumers: frozenset[str]) -> None:
        for consumer_id in sorted(consumers | self._takers):
            self.tracker.watch(self.layout.channel(self.group, consumer_id), Kind.DATA, consumer_id in consumers)
        self._takers = consumers

    def problems(self) -> Mapping[str, str]:
        """Path -> what is wrong with the node, and who must act."""
        strange = {
            path: f"this is no partition's, an operator must remove it: {topic} was deleted, its nodes cannot go"
            for topic, left in self.nodes.view.leftovers.items()
            for path in left.strange
        }
        return {**self.nodes.problems, **strange} if strange else self.nodes.problems

    @property
    def listing(self) -> bool:
        """True while the group's remaining nodes are listed."""
        return self._listing is not None

    def list_offsets(self) -> GroupListing:
        """List the group's offsets, since a group that has offsets is not removed."""
        if self._listing is None:
            self._listing = GroupListing.begin(self.group, self.layout, self.tracker)
        return self._listing

    def list_everything(self) -> None:
        """List the whole group, which is to be removed."""
        self.list_offsets().list_everything()

    def add_listing(self) -> None:
        """Put the listed nodes into `nodes`. Called when everything is clean."""
        listing = self._listing
        if listing is None:
            return
        leftover_versions = dict(listing.versions) if listing.everything else None
        view = fast_replace(self.nodes.view, offsets=listing.offsets())
        self.nodes = fast_replace(self.nodes, view=view, leftover_versions=leftover_versions)

    def sending(self, decisions: Sequence[Decision]) -> None:
        """Follow the nodes that these decisions are about to change, and read the nodes that they ask for."""
        self.look_up({decision.topic for decision in decisions if isinstance(decision, (LookUpTopic, DropTopic))})
        for decision in decisions:
            if isinstance(decision, GrantPartitions):
                self.owners.want(decision.partitions)

    def sent(self, decision: Decision) -> None:
        """Note that the decision was sent, so that the nodes that it changes are read."""
        if isinstance(decision, (StopFetching, GrantPartitions)):
            self.channels.sent(decision.consumer_id, decision.partitions)
        elif isinstance(decision, ControlMember):
            self.channels.sent_control(decision.consumer_id, decision.option)
        elif isinstance(decision, DeleteClaims):
            self.owners.read_offsets(decision.partitions)

    def _watch_until_mended(self, address: Address, node: Node, wrong: bool) -> None:
        """Watch a node that cannot be parsed, since somebody is asked to edit it. The record is watched anyway."""
        if node.kind is Kind.DATA and address.place is not Place.RECORD:
            self.tracker.watch(node.path, Kind.DATA, wrong)

    def _follow(self, before: GroupNodes, address: Address, node: Node) -> None:
        match address.place, node.kind:
            case Place.IDS, _:
                known = before.view.members.keys()
                self._want_below(address, node, known)
                self._gone(known - set(node.children))
            case Place.REGISTRATION, _ if not node.exists:  # evicted, or gone between two answers
                self._gone({address.name})
            case Place.CHANNELS, _:
                self.channels.follow_list(before, self.nodes, node)
            case Place.CHANNEL, Kind.CHILDREN:
                self.channels.follow_channel(before, self.nodes, address.name, node)
            case Place.CHANNEL, Kind.DATA:
                self.channels.follow_status(before, self.nodes, address.name, node)
            case Place.COMMAND, _:
                self.channels.follow_command(self.nodes, address, node)
            case Place.INSTANCES, _:
                known = before.view.instances.keys()
                self._want_below(address, node, known)
                for want in below(address, node.path, sorted(known - set(node.children)), self.layout):
                    self._unwant(want.path)
            case Place.OWNERS, Kind.CHILDREN:
                self._want_below(address, node, self._listed)
                self._listed.update(node.children)
            case Place.MARK, Kind.DATA:
                if node.exists:
                    numbers = self.nodes.view.topics.get(address.name, ())
                    self.owners.want(_numbered(address.name, numbers))
                    if address.name not in before.marks:  # missing owners may have been created together with the mark
                        self.owners.touch_missing(address.name, self.nodes.view.owners)
                elif address.name in before.marks:
                    self._forget(address.name)
            case Place.CLAIMS, Kind.CHILDREN:
                self.owners.follow_list(node)
            case Place.OFFSETS, Kind.CHILDREN if address.name in self._looking:
                self._offsets.update(_numbered(address.name, partition_numbers(node.children)))
                self._want_below(address, node, ())
            case Place.MARK, Kind.CHILDREN:
                self.owners.want(_numbered(address.name, partition_numbers(node.children)))

    def _want_below(self, address: Address, node: Node, known: Iterable[str]) -> None:
        """Want the nodes that are new in a list."""
        fresh = sorted(set(node.children).difference(known))
        self.tracker.want_all(below(address, node.path, fresh, self.layout), self.group)

    def _gone(self, consumers: Set[str]) -> None:
        for consumer_id in sorted(consumers):
            self.tracker.unwant(self.layout.registration(self.group, consumer_id))
        self.channels.follow_end(self.nodes, consumers)

    def _forget(self, topic: str) -> None:
        """Forget the topic: its mark was removed, with everything below it."""
        for path in self.owners.forget(topic):
            self._unwant(path)
        self._listed.discard(topic)
        self._unwant(self.layout.mark(self.group, topic), Kind.CHILDREN)
        if topic not in self.needs.topics:
            for path, *_ in above_partitions(self.group, topic, self.layout):
                self._unwant(path)

    def _unwant(self, path: str, kind: Kind = Kind.DATA) -> None:
        """Stop following the node, unless the group is being listed for its removal: the listing must see each node
        go."""
        if self._listing is None:
            self.tracker.unwant(path, kind)


def _numbered(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    return as_partitions(zip(repeat(topic), numbers, strict=False))
