"""Drops a group's owners and offsets of a topic that was deleted, or deleted and created again.

A mark says to which topic of that name the owners and offsets belong. When the topic is another one, its readers are
stopped. When no member can read or commit any more, the remaining nodes are removed in several steps; a coordinator may
die after any of them:

    stop, release  ->  look up what is left  ->  owners emptied, offsets dropped  ->  the mark: another one, or none

The nodes of a deleted topic are removed only after a while: people delete a topic and create it again to empty it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from zkcoord.core.decisions import Decision, DropTopic, LookUpTopic, RenewMark
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import GroupView, Owner, TopicChange

DELETED_MS = 60_000
"""ms from this coordinator's first sight of a deleted topic to the removal of its owners, offsets and mark."""

DROPS_MAX = 20
"""Number of topics that one group drops in one step. Thousands may be deleted at once."""

Available = Callable[[Owner | None], bool]
"""`core.ownership.available` for the present moment."""


@dataclass(frozen=True, slots=True)
class TopicMemory:
    """The first sights of deleted topics."""

    deleted: Mapping[str, int] = field(default_factory=dict)  # topic -> first sight, monotonic ms

    def seen(self, view: GroupView, now_ms: int) -> TopicMemory:
        """Return a copy with the topics that are first seen deleted now, and without those that are not deleted any
        more."""
        gone = [topic for topic, change in view.changed.items() if change is TopicChange.DELETED]
        return TopicMemory({topic: self.deleted.get(topic, now_ms) for topic in gone})

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When the next deleted topic must be dropped."""
        return min((t for seen in self.deleted.values() if (t := seen + DELETED_MS) > now_ms), default=None)


def recreated(view: GroupView) -> frozenset[str]:
    """Topics that were deleted and created again. No member may read on, or start, before the old nodes are dropped."""
    return frozenset(topic for topic, change in view.changed.items() if change is TopicChange.RECREATED)


def withheld(view: GroupView) -> frozenset[str]:
    """Topics of which nothing is granted: the recreated ones, and those with an unreadable mark."""
    waiting = (TopicChange.RECREATED, TopicChange.UNREADABLE)
    return frozenset(topic for topic, change in view.changed.items() if change in waiting)


def dropped(view: GroupView, partition: TopicPartition) -> bool:
    """True when the partition's topic is gone, together with the group's nodes for it: nobody will be granted it."""
    known = (view.topics, view.incarnations, view.changed)
    return not any(partition.topic in topics for topics in known)


def drops(
    view: GroupView, memory: TopicMemory, available: Available, astray: Collection[TopicPartition], now_ms: int
) -> list[Decision]:
    """Decide what can be done now for topics that were deleted or created again, or whose mark is out of date.

    `astray`: partitions that a consumer reads though they are available.
    """
    if not view.changed:
        return []
    decisions: list[Decision] = [
        RenewMark(topic=topic, why="the tree was copied or restored, or the topic was given an id")
        for topic in sorted(view.changed)
        if view.changed[topic] is TopicChange.RENEWED
    ]
    due = [
        topic
        for topic in sorted(view.changed)
        if view.changed[topic] is TopicChange.RECREATED
        or (view.changed[topic] is TopicChange.DELETED and now_ms >= memory.deleted[topic] + DELETED_MS)
    ]
    for topic in _drained(view, due, available, astray)[:DROPS_MAX]:
        again = view.changed[topic] is TopicChange.RECREATED
        why = "the topic was deleted and created again" if again else "the topic was deleted"
        left = view.leftovers.get(topic)
        if left is None:
            decisions.append(LookUpTopic(topic=topic, why=why))
        elif again or not left.strange:
            decisions.append(DropTopic(topic=topic, again=again, offsets=left.offsets, why=why))
    return decisions


def _drained(
    view: GroupView, topics: Collection[str], available: Available, astray: Collection[TopicPartition]
) -> list[str]:
    """The topics that no member reads or will read: every owner is available, and no command names a partition."""
    if not topics:
        return []
    busy, asked = {partition.topic for partition in astray}, frozenset(topics)
    for partition, owner in view.owners.items():
        if partition.topic in asked and not available(owner):
            busy.add(partition.topic)
    for consumer_id, channel in view.channels.items():
        if consumer_id in view.members:
            busy |= {partition.topic for command in channel.commands for partition in command.threads or ()}
    return [topic for topic in topics if topic not in busy]
