"""Follows the nodes of a group: every node that was read names further nodes to read. What is followed depends on the
tree, not on events.

`tree.reading` says which nodes a reading names, in which order they are read, and which are watched. This module
follows the difference between two readings (`group_wants`). `channels` and `owners` say which nodes that nobody watches
are read again. `tree.whole_view` makes the view of all that was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

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
from zkcoord.core.mode import COORDINATED, GroupMode
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import REBALANCE
from zkcoord.core.replay import takers
from zkcoord.core.requests import has_been_left
from zkcoord.core.state import Announced
from zkcoord.core.view import GroupView, Instance, Member, Wildcard
from zkcoord.legacy.mode_watch import ModeWatch
from zkcoord.serving.channels import Channels
from zkcoord.serving.group_listing import USUAL, GroupListing
from zkcoord.serving.group_wants import Below, GroupWants
from zkcoord.serving.owners import OwnerWatch, owner_watch
from zkcoord.serving.topics import TopicTable
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import Address, Layout, Place, partition_numbers
from zkcoord.tree.reading import above_partitions, below, first, looked_up, of_topic, roots
from zkcoord.tree.snapshot import LIST, Key, Kind, Node, Want, key_of
from zkcoord.tree.view import GroupNodes, fold_parsed, unread
from zkcoord.tree.whole_view import NO_INPUTS, NO_NEEDS, Environment, Needs, ViewInputs, completed, needs_of, subscribed

NAMING = frozenset((Place.IDS, Place.INSTANCES, Place.CHANNELS, Place.CHANNEL, Place.OWNERS, Place.CLAIMS))
"""The lists whose nodes are followed as soon as a list names them."""

ROOTS, LOOKED_UP, CLAIMED, ANNOUNCED = "roots", "topics that are looked up", "claims of evicted consumers", "ranges"
"""Reasons to follow nodes that no list names."""


@dataclass(slots=True)
class GroupWatch:
    """One group under watch. Invariant: of this group exactly the nodes in `wants` are wanted."""

    group: str
    layout: Layout
    tracker: Tracker
    wants: GroupWants
    nodes: GroupNodes
    owners: OwnerWatch
    channels: Channels
    needs: Needs = NO_NEEDS
    wildcards: frozenset[Wildcard] = frozenset()
    _instances: Mapping[str, Instance] = field(default_factory=dict)
    _members: Mapping[str, Member] = field(default_factory=dict)
    # invariant: the table was told the topics of these two
    _looked_up: frozenset[str] = frozenset()  # topics of which the remaining nodes are read
    _changes: int = 0  # the table's count of changes when wildcards were last resolved
    _made_of: ViewInputs = NO_INPUTS  # inputs from which the view was made
    _unread: dict[Key, tuple[Address, Node]] = field(default_factory=dict)  # answers that wait, one for each node
    _announced: Mapping[TopicPartition, tuple[int, Sequence[Announced]]] = field(default_factory=dict)
    # partition -> (version of its owner, -1 without a node; its announced ranges) when its offset was read last
    _takers: frozenset[str] = frozenset()
    # consumers whose statuses are watched, since each tells when the consumer has taken ranges over
    _listing: GroupListing | None = None  # lists what is left of the group, while that is needed
    whole: bool = True  # more than the record is followed: the group is served, or its release was not read yet
    modes: ModeWatch | None = None  # only where groups may have old members
    _of_plan: frozenset[str] = frozenset()  # topics that the old members' plan depends on
    _read_for: str | None = None  # the run of the last requested rebalance, for which everything was read again

    @classmethod
    def begin(cls, group: str, layout: Layout, tracker: Tracker) -> GroupWatch:
        """Follow a group from now on."""
        wants = GroupWants(group, tracker)
        owners = owner_watch(group, layout, tracker, wants)
        channels = Channels(group, layout, tracker, wants, owners)
        watch = cls(group, layout, tracker, wants, unread(group, layout), owners, channels, whole=not layout.adopts)
        watch.modes = ModeWatch(group) if layout.adopts else None
        wants.follow(ROOTS, first(group, layout))
        return watch

    def read_when_adopted(self) -> None:
        """Follow the whole group once it is adopted, and before that only its record."""
        if not self.whole and not self.nodes.view.observed:
            self.whole = True
            self.wants.follow(ROOTS, roots(self.group, self.layout))

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
        key = key_of(node.path, node.kind)
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
        problems, ended, owner = {*before.problems, *after.problems}, channels.ended, Place.OWNER
        for place, (address, node) in enumerate(nodes):
            if node.path in problems:
                self._watch_until_mended(address, node, node.path in after.problems)
            if address.place is owner:  # there are many of these
                if node.path in ended:
                    channels.at(place)
                    channels.follow_owner(before, after, address, node)
            else:
                channels.at(place)
                if self.modes is not None:
                    self.modes.take(address, node)
                self._follow(before, address, node)
        channels.end()

    def _watch_until_mended(self, address: Address, node: Node, wrong: bool) -> None:
        """Watch a node that cannot be parsed, since somebody is asked to edit it. The record is watched anyway."""
        if node.kind is Kind.DATA and address.place is not Place.RECORD:
            self.tracker.watch(node.path, Kind.DATA, wrong)

    def _follow(self, before: GroupNodes, address: Address, node: Node) -> None:
        """Follow the nodes that this one names, and those that changed with it without a watch."""
        if node.kind is Kind.CHILDREN and (listed := LIST + node.path) in self.wants and self._names(address):
            all_of_it = address.place is not Place.OWNERS
            self.wants.listed(listed, node.children, self._below(address, node.path), all_of_it=all_of_it)
        match address.place, node.kind:
            case Place.IDS, _:
                self.channels.follow_end(self.nodes, before.view.members.keys() - set(node.children))
            case Place.REGISTRATION, _ if not node.exists:  # evicted, or gone between two answers
                self._gone(Place.IDS, node)
                self.channels.follow_end(self.nodes, {address.name})
            case Place.CHANNELS, _:
                self.channels.follow_list(before, node)
            case Place.CHANNEL, Kind.CHILDREN:
                self.channels.follow_channel(before, self.nodes, address.name, node)
                if not node.exists:
                    self._gone(Place.CHANNELS, node)
            case Place.CHANNEL, Kind.DATA:
                self.channels.follow_status(before, self.nodes, address.name, node)
            case Place.COMMAND, _:
                self.channels.follow_command(self.nodes, address, node)
            case Place.MARK, Kind.DATA:
                self._follow_mark(before, address.name, node)
            case Place.MARK, Kind.CHILDREN:
                self.owners.want(address.name, partition_numbers(node.children))
            case Place.CLAIMS, Kind.CHILDREN:
                self.owners.follow_list(node)

    def _names(self, address: Address) -> bool:
        """True if the nodes that this list names are followed. Offsets are followed only of topics that are looked up.
        Marks, and partitions that are named below a mark, are followed until the mark was seen to be gone."""
        return address.place in NAMING or (address.place is Place.OFFSETS and address.name in self._looked_up)

    def _gone(self, listed: Place, node: Node) -> None:
        """Stop following a node that does not exist, though its list named it."""
        above, _, name = node.path.rpartition("/")
        self.wants.unlisted(LIST + above, name, self._below(Address(listed, self.group), above))

    def _below(self, address: Address, path: str) -> Below:
        return lambda names: below(address, path, names, self.layout)

    def _follow_mark(self, before: GroupNodes, topic: str, node: Node) -> None:
        if node.exists:
            self.owners.want(topic, self.nodes.view.topics.get(topic, ()))
            if topic not in before.marks:  # missing owners may have been created together with the mark
                self.owners.touch_missing(topic, self.nodes.view.owners)
            return
        self._gone(Place.OWNERS, node)
        if topic in before.marks:  # it was removed, with everything below it
            self.owners.forget(topic)
            if topic not in self.needs.topics:  # claims are not below it, and end with their sessions
                self.wants.not_any_more(_of_topic(topic), above_partitions(self.group, topic, self.layout))

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
                self.wants.follow(_of_topic(topic), of_topic(self.group, topic, self.layout))
            table.want(self.group, self.needs.topics)
        self._members, self._instances, self._changes = self.nodes.view.members, instances, table.changes
        self._of_plan = of_plan

    def complete(self, environment: Environment, now_ms: int) -> None:
        """Complete the view, and follow the nodes that it shows to be needed. Called when all is clean."""
        before, listing = self.nodes.view, self._listing
        around = replace(
            environment,
            mode=self._mode(environment.topics, now_ms),
            looked_up=self._looked_up,
            offsets=None if listing is None else listing.offsets(),
        )
        self.nodes, self._made_of = completed(self.nodes, self.needs, around, self._made_of)
        if listing is not None:
            remaining = dict(listing.versions) if listing.everything else None
            self.nodes = fast_replace(self.nodes, leftover_versions=remaining)
        view = self.nodes.view
        for topic, partitions in view.topics.items() if view.topics is not before.topics else ():
            known = topic in view.marked or not self.layout.owners_below_marks
            if known and before.topics.get(topic) != partitions:
                self.owners.want(topic, partitions)
        for topic, what in view.leftovers.items():  # watch nodes that an operator is asked to remove
            for path, kind, *_ in looked_up(self.group, topic, self.layout):
                self.tracker.watch(path, kind, bool(what.strange))
        self._follow_offsets(view)

    def _mode(self, topics: KnownTopics, now_ms: int) -> GroupMode:
        """The group's mode now."""
        if self.modes is None:
            return COORDINATED
        record = self.nodes.view.record
        mode = self.modes.mode(record.adoption, topics, now_ms, left=has_been_left(record))
        if mode is not self.nodes.view.mode:
            # beside old members nothing is urgent, and they change a list once for every partition
            self.tracker.patient(self.group, patient=not mode.coordinated)
        return mode

    def _follow_offsets(self, view: GroupView) -> None:
        """Follow the offsets of evicted consumers' claims, and of partitions with announced ranges and without a living
        owner. Read those that are new.

        Nobody commits such a partition until it is granted, so its offset is read once, and again only when other
        ranges are announced. The latter covers a member that goes on reading under an owner that somebody set empty: it
        commits. Beside old members a zkcoord owner counts until it has committed: there the offsets are watched.
        """
        claimed = self._offsets(view.claim_offsets)
        fresh = [want for want in claimed if want.path not in self.wants.named(CLAIMED)]
        self.wants.follow(CLAIMED, claimed)
        self._touch(fresh)
        found, before = self._made_of.opened.found, self._announced
        if not found and not before:
            return
        self._watch_takers(takers(view, found))
        seen = {p: (view.owners[p].version if p in view.owners else -1, found[p]) for p in found}
        self._announced = seen
        self.wants.not_any_more(ANNOUNCED, self._offsets(before.keys() - seen.keys()))
        changed = [p for p, version in seen.items() if before.get(p) != version]
        self._read_offsets(ANNOUNCED, changed)
        for partition in changed:
            if partition in view.owners and not view.mode.coordinated:
                self.tracker.watch(self.layout.offset(self.group, partition), Kind.DATA, True)

    def _watch_takers(self, consumers: frozenset[str]) -> None:
        for consumer_id in sorted(consumers | self._takers):
            self.tracker.watch(self.layout.channel(self.group, consumer_id), Kind.DATA, consumer_id in consumers)
        self._takers = consumers

    def _read_offsets(self, reason: str, partitions: Iterable[TopicPartition]) -> None:
        """Follow these offsets, and read them again."""
        offsets = self._offsets(partitions)
        self.wants.also(reason, offsets)
        self._touch(offsets)

    def _offsets(self, partitions: Iterable[TopicPartition]) -> list[Want]:
        return [Want(self.layout.offset(self.group, partition)) for partition in sorted(partitions)]

    def _touch(self, wants: Iterable[Want]) -> None:
        for want in wants:
            self.tracker.touch(want.path, want.kind)

    def look_up(self, topics: Set[str]) -> None:
        """Read the remaining nodes of these topics. Those of other topics are no longer followed, except while an
        operator must remove a node first."""
        view, before = self.nodes.view, self._looked_up
        topics = topics | {t for t, what in view.leftovers.items() if what.strange and t in view.changed}
        self._looked_up = frozenset(topics)
        wants = {topic: looked_up(self.group, topic, self.layout) for topic in sorted(topics)}
        self.wants.follow(LOOKED_UP, [want for listed in wants.values() for want in listed])
        for topic in sorted(topics - before):
            self._touch(wants[topic])
        if dropped := before - topics:
            lists = {listed: node for listed, node in self.nodes.lists.items() if listed[1] not in dropped}
            left = {topic: what for topic, what in self.nodes.view.leftovers.items() if topic not in dropped}
            self.nodes = fast_replace(self.nodes, lists=lists, view=fast_replace(self.nodes.view, leftovers=left))
        followed = self._announced.keys() | self.nodes.view.claim_offsets.keys()
        if not topics and self.nodes.offsets.keys() - followed:
            offsets = {p: seen for p, seen in self.nodes.offsets.items() if p in followed}
            self.nodes = fast_replace(self.nodes, offsets=offsets)

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
            self._listing = GroupListing.begin(self.group, self.layout, self.tracker, self.wants)
        return self._listing

    def list_everything(self) -> None:
        """List the whole group, which is to be removed."""
        self.list_offsets().list_everything()

    def sending(self, decisions: Sequence[Decision]) -> None:
        """Follow the nodes that these decisions are about to change, and read the nodes that they ask for."""
        self.look_up({decision.topic for decision in decisions if isinstance(decision, (LookUpTopic, DropTopic))})
        granted: defaultdict[str, list[int]] = defaultdict(list)  # topic -> its partitions
        for decision in decisions:
            for topic, number in decision.partitions if isinstance(decision, GrantPartitions) else ():
                granted[topic].append(number)
        for topic, numbers in granted.items():
            self.owners.want(topic, numbers)

    def sent(self, decision: Decision) -> None:
        """Note that the decision was sent, so that the nodes that it changes are read."""
        if isinstance(decision, (StopFetching, GrantPartitions)):
            self.channels.sent(decision.consumer_id, decision.partitions)
        elif isinstance(decision, ControlMember):
            self.channels.sent_control(decision.consumer_id, decision.option)
        elif isinstance(decision, DeleteClaims):
            self._read_offsets(CLAIMED, decision.partitions)


def _of_topic(topic: str) -> str:
    """The reason for the parents of a topic's nodes: a member subscribes to it."""
    return f"topic {topic}"
