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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.serving.changes import more_than_shown
from zkcoord.serving.group_wants import GroupWants
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout, partition_numbers
from zkcoord.tree.snapshot import Node


class OwnerWatch(Protocol):
    """The owners of one group under watch."""

    def want(self, topic: str, numbers: Iterable[int]) -> None:
        """Follow the owners of these partitions: they exist, or a grant of them is about to be sent."""

    def touch_missing(self, topic: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Read again those owners of the topic that have no known node. `owners` are the known ones."""

    def forget(self, topic: str) -> None:
        """Forget the topic, whose mark was removed."""

    def follow_list(self, node: Node) -> None:
        """Take in the list of a topic's owners. The nodes that it names are followed."""

    def nodes_of(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The nodes that show who owns these partitions now, and that nobody watches."""

    def left_by_end(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """The nodes that show whether a consumer that is gone had released these partitions, which are all that it
        owned."""


def owner_watch(group: str, layout: Layout, tracker: Tracker, wants: GroupWants) -> OwnerWatch:
    """Return the object that follows the owners of this group."""
    return ClaimWatch(tracker) if layout.ownership.claimed else PersistentWatch(group, layout, tracker, wants)


@dataclass(slots=True)
class PersistentWatch:
    """Follows a node for each existing partition, without a watch."""

    group: str
    layout: Layout
    tracker: Tracker
    wants: GroupWants
    _followed: dict[str, set[int]] = field(default_factory=dict)  # topic -> its partitions

    def want(self, topic: str, numbers: Iterable[int]) -> None:
        """Read the owners that are new."""
        followed = self._followed.setdefault(topic, set())
        fresh = sorted(set(numbers) - followed)  # there may be very many
        if fresh:
            followed.update(fresh)
            above = self.layout.topic_owners(self.group, topic)
            self.wants.also_data(_of_owners(topic), [f"{above}/{number}" for number in fresh])

    def touch_missing(self, topic: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Read the missing owners again."""
        for number in sorted(self._followed.get(topic, ())):
            partition = TopicPartition(topic, number)
            if partition not in owners:
                self.tracker.touch(self.layout.owner(self.group, partition))

    def forget(self, topic: str) -> None:
        """Forget the owners, which were removed with the mark."""
        self._followed.pop(topic, None)
        self.wants.follow(_of_owners(topic), ())

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


@dataclass(slots=True)
class ClaimWatch:
    """Reads the claims of a topic's list again, when the list does not show all that happened."""

    tracker: Tracker
    _lists: dict[str, Node] = field(default_factory=dict)  # by path, as last read

    def want(self, topic: str, numbers: Iterable[int]) -> None:
        """Does nothing: claims in a list are read."""

    def touch_missing(self, topic: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Does nothing: the list tells of them."""

    def forget(self, topic: str) -> None:
        """Does nothing: claims are not below the mark."""

    def follow_list(self, node: Node) -> None:
        """Take in a topic's list. A claim may have been deleted and created again: then all are read again."""
        if more_than_shown(self._lists.get(node.path), node):
            for number in partition_numbers(node.children):
                self.tracker.touch(f"{node.path}/{number}")
        self._lists[node.path] = node

    def nodes_of(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Always empty: the lists are watched."""
        return []

    def left_by_end(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Always empty: the lists are watched."""
        return []


def _of_owners(topic: str) -> str:
    """The reason for a topic's owners: its mark exists."""
    return f"owners of {topic}"
