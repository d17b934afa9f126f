"""Follows the claims of one group, where owners are ephemeral nodes of their consumers.

Each topic's list of claims is watched: old consumers delete and make claims as they like, and a claim goes with its
session. A claim's data never changes, so it is read once. A claim that was deleted and made again between two looks at
its list is noticed by the number of the list's changes, and then all of the list are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition
from zkcoord.core.ownership import claims_of_evicted
from zkcoord.serving.changes import more_than_shown
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout, partition_numbers
from zkcoord.tree.reading import claim_lists
from zkcoord.tree.snapshot import Node
from zkcoord.tree.view import GroupNodes


@dataclass(slots=True)
class ClaimWatch:
    """The claims of one group; in a layout without claims it does nothing."""

    group: str
    layout: Layout
    tracker: Tracker
    offsets: set[TopicPartition] = field(default_factory=set)  # invariant: these are followed, of evicted ones' claims
    _lists: dict[str, Node] = field(default_factory=dict)  # by path, as last read

    def want(self, topics: Iterable[str]) -> None:
        """Follow the claims of these topics."""
        for topic in topics:
            self.tracker.want_all(claim_lists(self.group, topic, self.layout), self.group)

    def follow_list(self, node: Node) -> None:
        """Take in a topic's list: read the claims that are new in it."""
        known = self._lists.get(node.path)
        before = frozenset(known.children if known is not None else ())
        again, self._lists[node.path] = more_than_shown(known, node), node
        for number in partition_numbers(node.children):
            path = f"{node.path}/{number}"
            self.tracker.want(path, scope=self.group)
            if again and str(number) in before:
                self.tracker.touch(path)
        for number in partition_numbers(before.difference(node.children)):
            self.tracker.unwant(f"{node.path}/{number}")

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        """Read the lists of these partitions' topics: who claimed them, or gave them back, has just said so."""
        for topic in sorted({p.topic for p in partitions}) if self.layout.ownership.claimed else ():
            for path, kind, *_ in claim_lists(self.group, topic, self.layout):
                self.tracker.touch(path, kind)

    def know_offsets(self, nodes: GroupNodes, kept: Set[TopicPartition]) -> GroupNodes:
        """With the versions of the offsets of evicted consumers' claims; read those that are unknown. `kept`: offsets
        that are followed for another reason."""
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
        """Read these offsets anew: somebody may have set them meanwhile."""
        for partition in sorted(partitions):
            path = self.layout.offset(self.group, partition)
            self.tracker.want(path, scope=self.group)
            self.tracker.touch(path)
