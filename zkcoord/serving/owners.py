"""Follows the owner nodes of one group. The layout decides which of them are read, watched and read again.

Persistent owners are not watched, since there may be very many. An owner that an acknowledgement changed is read
together with the channel (`serving.channels`).

In the layout `legacy` owners are claims: ephemeral nodes of their consumers. Old consumers delete and create claims at
any time, and a claim goes with its session. So each topic's list of claims is watched. A claim's data never changes, so
it is read once. The list's count of changes tells when a claim was deleted and created again between two looks; then
all claims of the list are read again. Only an event of the list has the list read again: every other change that
concerns it comes after that event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition
from zkcoord.core.ownership import claims_of_evicted
from zkcoord.core.view import Owner
from zkcoord.serving.changes import more_than_shown
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout, partition_numbers
from zkcoord.tree.reading import claim_lists
from zkcoord.tree.snapshot import Node
from zkcoord.tree.view import GroupNodes


class OwnerWatch(Protocol):
    """The owners of one group under watch."""

    @property
    def offsets(self) -> Set[TopicPartition]:
        """The partitions whose offset is followed because of their owner."""

    def subscribe(self, topics: Iterable[str]) -> None:
        """Follow the owners of these topics, which the group wants from now on."""

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow the owners of these partitions: they exist, or a grant of them is about to be sent."""

    def touch_missing(self, topic: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Read again those owners of the topic that have no known node. `owners` are the known ones."""

    def forget(self, topic: str) -> Iterable[str]:
        """Forget the topic, whose mark was removed; return the paths of the owners that were followed."""

    def follow_list(self, node: Node) -> None:
        """Take in the list of a topic's owners."""

    def nodes_of(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The nodes that show who owns these partitions now, and that nobody watches."""

    def left_by_end(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """The nodes that show whether a consumer that is gone had released these partitions, which are all that it
        owned."""

    def know_offsets(self, nodes: GroupNodes, kept: Set[TopicPartition]) -> GroupNodes:
        """Return the nodes with the versions of those `offsets` that were read. `kept` are offsets that are followed
        for another reason."""

    def read_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these offsets again: somebody may have set them meanwhile."""


def owner_watch(group: str, layout: Layout, tracker: Tracker) -> OwnerWatch:
    """Return the object that follows the owners of this group."""
    return (ClaimWatch if layout.ownership.claimed else PersistentWatch)(group, layout, tracker)


@dataclass(slots=True)
class PersistentWatch:
    """Follows a node for each existing partition, without a watch."""

    group: str
    layout: Layout
    tracker: Tracker
    _followed: defaultdict[str, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))  # by topic

    @property
    def offsets(self) -> Set[TopicPartition]:
        """Always empty."""
        return frozenset()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Does nothing: the topic's mark tells of its owners."""

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Read the owners that are new."""
        fresh = [p for p in partitions if p not in self._followed[p.topic]]
        for partition in fresh:
            self._followed[partition.topic].add(partition)
        paths = [self.layout.owner(self.group, partition) for partition in fresh]
        self.tracker.want_data(paths, self.group, by_writes=True)

    def touch_missing(self, topic: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Read the missing owners again."""
        for partition in sorted(p for p in self._followed.get(topic, ()) if p not in owners):
            self.tracker.touch(self.layout.owner(self.group, partition))

    def forget(self, topic: str) -> Iterable[str]:
        """Forget the owners, which were removed with the mark."""
        return [self.layout.owner(self.group, partition) for partition in sorted(self._followed.pop(topic, ()))]

    def follow_list(self, node: Node) -> None:
        """Does nothing: the owners below a mark are known."""

    def nodes_of(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The paths of these partitions' owners."""
        return [self.layout.owner(self.group, partition) for partition in partitions]

    def left_by_end(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """One of them. A consumer's commands and status tell everything that it releases, except for a leave, which
        releases everything: so one owner is enough. A consumer that released only some of them and died need not be
        looked at: a grant names versions."""
        return self.nodes_of(partitions[:1])

    def know_offsets(self, nodes: GroupNodes, kept: Set[TopicPartition]) -> GroupNodes:
        """Return `nodes` unchanged."""
        return nodes

    def read_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Does nothing: no decision about an owner depends on an offset."""


@dataclass(slots=True)
class ClaimWatch:
    """Follows each topic's list of claims, and the claims that it names."""

    group: str
    layout: Layout
    tracker: Tracker
    offsets: set[TopicPartition] = field(default_factory=set)
    # invariant: the offsets of evicted consumers' claims, which are followed
    _lists: dict[str, Node] = field(default_factory=dict)  # by path, as last read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Watch the lists of these topics' claims."""
        for topic in topics:
            self.tracker.want_all(claim_lists(self.group, topic, self.layout), self.group)

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Does nothing: claims in a list are read."""

    def touch_missing(self, topic: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Does nothing: the list tells of them."""

    def forget(self, topic: str) -> Iterable[str]:
        """Returns nothing: claims are not below the mark."""
        return ()

    def follow_list(self, node: Node) -> None:
        """Take in a topic's list, and read the claims that are new in it."""
        known = self._lists.get(node.path)
        before = frozenset(known.children if known is not None else ())
        again, self._lists[node.path] = more_than_shown(known, node), node
        fresh = node.children if again else [name for name in node.children if name not in before]
        for number in partition_numbers(fresh):
            path = f"{node.path}/{number}"
            self.tracker.want(path, scope=self.group)
            if str(number) in before:
                self.tracker.touch(path)
        for number in partition_numbers(before.difference(node.children)):
            self.tracker.unwant(f"{node.path}/{number}")

    def nodes_of(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Always empty: the lists are watched."""
        return []

    def left_by_end(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Always empty: the lists are watched."""
        return []

    def know_offsets(self, nodes: GroupNodes, kept: Set[TopicPartition]) -> GroupNodes:
        """Return the nodes with the offset versions of evicted consumers' claims. Read those that are unknown."""
        view = nodes.view
        found = {p for partitions in claims_of_evicted(view).values() for p in partitions}
        if not found and not self.offsets:
            return nodes
        for partition in sorted(self.offsets - found - kept):
            self.tracker.unwant(self.layout.offset(self.group, partition))
        new = found - self.offsets
        self.offsets = found
        self.read_offsets(new)
        if new:
            return nodes
        seen = {p: nodes.offsets.get(p) for p in sorted(found)}
        versions = {p: None if offset is None else offset.version for p, offset in seen.items()}
        return (
            nodes
            if versions == view.claim_offsets
            else fast_replace(nodes, view=fast_replace(view, claim_offsets=versions))
        )

    def read_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these offsets again."""
        for partition in sorted(partitions):
            path = self.layout.offset(self.group, partition)
            self.tracker.want(path, scope=self.group)
            self.tracker.touch(path)
