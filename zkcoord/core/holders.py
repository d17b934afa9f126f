"""Partitions that a consumer reads though their owner nodes are empty: somebody set the node empty.

A reader is always named in a node: in its own status from the start's acknowledgement on, and before that in the start
in its channel. So a coordinator finds such a reader even if it never saw the owner before. The reader is stopped before
anybody else is granted the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import START, Channel, GroupView, Owner


@dataclass(frozen=True, slots=True)
class Holders:
    """Which consumer holds what, by statuses and starts. Invariant: `_holder` is made from `_channels`, as far as they
    count.

    A channel counts while its consumer may read: it is a member, or it was evicted and is in its grace.
    """

    astray: Mapping[TopicPartition, str] = field(default_factory=dict)
    # partition with an empty owner -> the consumer that reads it
    _holder: Mapping[TopicPartition, str] = field(default_factory=dict)
    _channels: Mapping[str, Channel] = field(default_factory=dict)

    def seen(
        self,
        view: GroupView,
        lacking: Iterable[tuple[TopicPartition, str]],
        may_read: Callable[[str], bool],
        free: Callable[[Owner | None], bool],
    ) -> Holders:
        """Return a copy whose `astray` covers these partitions. `lacking` is as in `core.difference`."""
        if not lacking:  # as in most steps; changes are taken in when they matter
            return self if not self.astray else Holders({}, self._holder, self._channels)
        known = self._with(view, may_read)
        astray = {
            partition: holder
            for partition, _ in lacking
            if (holder := known._holder.get(partition)) is not None and free(view.owners.get(partition))
        }
        return Holders(astray, known._holder, known._channels)

    def _with(self, view: GroupView, may_read: Callable[[str], bool]) -> Holders:
        channels = {c: channel for c, channel in view.channels.items() if may_read(c)}
        changed = [c for c, channel in channels.items() if self._channels.get(c) is not channel]
        gone = self._channels.keys() - channels.keys()
        if not changed and not gone:
            return self
        holder = dict(self._holder)
        for consumer_id in (*sorted(gone), *changed):
            before, now = self._channels.get(consumer_id), channels.get(consumer_id)
            left = _held(before) if before is not None else frozenset()
            for partition in left if now is None else left - _held(now):
                if holder.get(partition) == consumer_id:
                    del holder[partition]
        for consumer_id in changed:
            holder.update(dict.fromkeys(_held(channels[consumer_id]), consumer_id))
        return Holders({}, holder, channels)


def _held(channel: Channel) -> frozenset[TopicPartition]:
    """The partitions that the consumer holds or is about to start. It may have read an owner before that was
    emptied."""
    starts = [c.threads for c in channel.commands if c.option == START and c.error is None and c.threads]
    return channel.held.union(*starts) if starts else channel.held
