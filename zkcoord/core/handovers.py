"""Hand-overs of a group's partitions, as a coordinator sees them: asked for, released, granted, acknowledged.

`KeptHandOvers.after` is called with each view that was decided on, and with the decisions. It looks only at partitions
that are under way, so a group at rest costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from zkcoord.core.decisions import Decision, GrantPartitions, StopFetching
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import START, STOP, GroupView

MOMENTS = ("stop_ms", "released_ms", "granted_ms", "acknowledged_ms")
"""The times of a hand-over, in their order; a stage lies between each two."""


class Stage(NamedTuple):
    """A part of a hand-over that is over. `consumer`: the one that acted; "": the coordinator did."""

    name: str
    begun_ms: int
    ended_ms: int
    consumer: str


class HandOver(NamedTuple):
    """One partition on its way to a reader. Times are the coordinator's monotonic clock; None: not yet, or never.

    `stop_ms` is None when nobody had to be stopped: the partition was free, or its reader had died. `released_ms` is
    then the moment of the grant.
    """

    partition: TopicPartition
    giver: str = ""  # the consumer that was stopped; "": nobody had to be
    taker: str = ""  # the consumer that was told to start it; "": nobody yet
    generation: int = 0
    stop_ms: int | None = None
    released_ms: int | None = None
    granted_ms: int | None = None
    acknowledged_ms: int | None = None

    @property
    def begun_ms(self) -> int:
        """When the first command about it was sent."""
        return next(t for t in (self.stop_ms, self.released_ms, self.granted_ms, 0) if t is not None)

    def stages(self) -> list[Stage]:
        """Return those that are over."""
        named = zip(("stop", "grant", "start"), pairwise(getattr(self, moment) for moment in MOMENTS), strict=True)
        acting = {"stop": self.giver, "start": self.taker}
        return [Stage(name, *times, acting.get(name, "")) for name, times in named if None not in times]

    @property
    def unowned_ms(self) -> int:
        """How long nobody read the partition, as far as this coordinator saw; 0 while that is not over."""
        if self.acknowledged_ms is None or self.released_ms is None:
            return 0
        return self.acknowledged_ms - self.released_ms


@dataclass(frozen=True, slots=True)
class KeptHandOvers:
    """The hand-overs of one group that are under way, and those that the last step completed."""

    open: Mapping[TopicPartition, HandOver] = field(default_factory=dict)
    completed: tuple[HandOver, ...] = ()

    def after(self, view: GroupView, decisions: Sequence[Decision], now_ms: int) -> KeptHandOvers:
        """Return a copy that knows this view and what was decided on it."""
        moving = [d for d in decisions if isinstance(d, (StopFetching, GrantPartitions))]
        if not self.open and not moving:
            return self if not self.completed else KeptHandOvers()
        under_way: dict[TopicPartition, HandOver] = {}
        completed = []
        for partition, known in self.open.items():
            now = _seen(known, view, now_ms)
            if now is not None and now.acknowledged_ms is not None:
                completed.append(now)
            elif now is not None:
                under_way[partition] = now
        for decision in moving:
            for partition in decision.partitions:
                known = under_way.get(partition, HandOver(partition))._replace(generation=view.state.generation)
                if isinstance(decision, GrantPartitions):
                    released_ms = now_ms if known.released_ms is None else known.released_ms
                    known = known._replace(taker=decision.consumer_id, granted_ms=now_ms, released_ms=released_ms)
                elif known.stop_ms is None:
                    known = known._replace(giver=decision.consumer_id, stop_ms=now_ms)
                under_way[partition] = known
        return KeptHandOvers(under_way, tuple(completed))


def _seen(known: HandOver, view: GroupView, now_ms: int) -> HandOver | None:
    """Return what the view shows of it; None when there is nothing to wait for any more."""
    partition = known.partition
    if partition.topic not in view.topics:
        return None
    owner = view.owners.get(partition)
    thread = owner.thread if owner is not None else ""
    if known.granted_ms is None:
        if known.released_ms is None and (not thread or consumer_of(thread) not in view.members):
            return known._replace(released_ms=now_ms)
        if known.released_ms is None and not _named(view, known.giver, partition, STOP):
            return None  # the stop was refused, or is over, and its reader has it still
        return known
    if _named(view, known.taker, partition, START):
        return known
    if thread and consumer_of(thread) == known.taker and known.taker in view.members:
        return known._replace(acknowledged_ms=now_ms)
    if thread and consumer_of(thread) in view.members:
        return None  # somebody else has it: another coordinator granted it
    return known._replace(taker="", granted_ms=None)  # the start was refused, or its receiver has died


def _named(view: GroupView, consumer_id: str, partition: TopicPartition, option: str) -> bool:
    channel = view.channels.get(consumer_id)
    return channel is not None and any(c.option == option and c.names(partition) for c in channel.commands)
