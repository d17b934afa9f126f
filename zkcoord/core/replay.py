"""Announced ranges: a member writes down the range that it is about to process, and the next owner processes exactly
that.

A member announces in its status before it processes. An announced range counts while no commit has passed it, that is,
while the committed offset is the range's start. Offsets only grow, so a range that is over stays over. A range may be
in several places at once. It is removed from none of them before the next place has it:

    a status                  of a dead member, or of a living one that stopped in the middle of a batch
    an unacknowledged start   of a dead member, which had been handed the range
    the group's state         when a start that was refused as a whole is removed

In offset stores other than ZooKeeper a coordinator does not know the committed offset. There every range counts, and
the receiver compares it with the offset at which it starts.

If several ranges count, the one of the highest generation is handed on. A living owner handles its own announcements.
So only partitions without a living owner are considered here: nobody can commit those meanwhile.

Beside old members nobody hands ranges on. A zkcoord member that claims a partition reads the statuses for them, and
only its acknowledgement takes them into its own status. It may die in between, and the old members may be gone by then.
So where owners are claims, a zkcoord owner alone does not end a range (F217, F235). The range counts until the
claimer's status says that it holds the partition, or, beside old members where the coordinator knows commits, until a
commit has passed the range.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zkcoord.core.decisions import SetState, StateEvent
from zkcoord.core.difference import changed_owners
from zkcoord.core.mode import COORDINATED, GroupMode
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.offset_store import ZOOKEEPER
from zkcoord.core.ownership import granted_with_ranges
from zkcoord.core.replay_quota import KEPT_BYTES_MAX, range_bytes
from zkcoord.core.requests import deleting
from zkcoord.core.state import Announced
from zkcoord.core.topics import dropped
from zkcoord.core.view import PING, Channel, GroupView, Member, Owner

REPLAY = "replay"
"""A member that offers this accepts announced ranges in its starts."""

Ranges = Mapping[TopicPartition, list[Announced]]


class _Open(NamedTuple):
    """A channel's announced ranges that nobody has taken over, and the channels from which this follows: its own, and
    those of the owners whose statuses tell it."""

    ranges: tuple[tuple[TopicPartition, Announced], ...]
    told_by: Mapping[str, Channel | None]
    named: frozenset[TopicPartition]  # partitions of all its ranges, taken over or not

    def stands(self, channels: Mapping[str, Channel], changed: frozenset[TopicPartition]) -> bool:
        """True while these channels are the same objects, and no range is of a partition whose owner has changed."""
        same = all(channels.get(name) is channel for name, channel in self.told_by.items())
        return same and self.named.isdisjoint(changed)


@dataclass(frozen=True, slots=True)
class OpenRanges:
    """The announced ranges that nobody has taken over yet.

    Invariant: `found` is the answer to the parts of the view that are kept here, and `_of` holds the answer for each
    channel. The answer for a channel is computed again when a channel on which it depends has changed, or the owner of
    a partition that it names. All are computed again when members, mode, store or the set of owner nodes have changed.
    """

    found: Ranges = field(default_factory=dict)
    _members: Mapping[str, Member] = field(default_factory=dict)
    _owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    _replay: Mapping[TopicPartition, Announced] = field(default_factory=dict)
    _channels: Mapping[str, Channel] = field(default_factory=dict)
    _mode: GroupMode = COORDINATED
    _store: str = ZOOKEEPER
    _of: Mapping[str, _Open] = field(default_factory=dict)  # of channels that hold ranges

    def seen(self, view: GroupView) -> OpenRanges:
        """Return a copy with the answer for this view."""
        same = view.members is self._members and view.mode is self._mode and view.record.store_name == self._store
        same_owners = same and view.owners is self._owners
        if same_owners and view.state.replay is self._replay and view.channels is self._channels:
            return self
        standing = {c: channel for c, channel in view.channels.items() if channel.announced or _handed(channel)}
        known = self._known(view) if same else {}
        of = {c: known.get(c) or _open(view, channel) for c, channel in standing.items()}
        found: dict[TopicPartition, list[Announced]] = {}
        for partition, announced in view.state.replay.items():
            owner = view.owners.get(partition, _NOBODY)
            if partition not in taken_over(view, owner.thread):
                found.setdefault(partition, []).append(announced)
        for opened in of.values():
            for partition, announced in opened.ranges:
                found.setdefault(partition, []).append(announced)
        store = view.record.store_name
        return OpenRanges(found, view.members, view.owners, view.state.replay, view.channels, view.mode, store, of)

    def _known(self, view: GroupView) -> dict[str, _Open]:
        """The channels' answers that are right in this view, too. (A group may have 100,000 ranges, and most steps
        change few owners.)"""
        changed = changed_owners(self._owners, view.owners) if self._of else None
        owners = frozenset(changed or ())
        return {} if changed is None else {c: of for c, of in self._of.items() if of.stands(view.channels, owners)}


class _Everything:
    """Contains every partition."""

    def __contains__(self, partition: object) -> bool:
        return True


_EVERYTHING = _Everything()


def taken_over(view: GroupView, thread: str) -> Container[TopicPartition]:
    """Return those of this owner's partitions whose announced ranges it was handed, or never can be handed."""
    consumer_id = consumer_of(thread)
    if consumer_id not in view.members:
        return ()
    if granted_with_ranges(view) or consumer_id in view.mode.old:
        return _EVERYTHING
    return view.channels[consumer_id].held if _told_by_status(view) and consumer_id in view.channels else ()


def takers(view: GroupView, found: Ranges) -> frozenset[str]:
    """Return the consumers whose statuses tell when these ranges are taken over. Empty where something else tells
    it."""
    if not _told_by_status(view):
        return frozenset()
    owners = {consumer_of(view.owners[partition].thread) for partition in found if partition in view.owners}
    return frozenset(owners & view.members.keys())


def _told_by_status(view: GroupView) -> bool:
    """True when only a consumer's status tells which partitions it has taken over."""
    return not granted_with_ranges(view) and (view.mode.coordinated or not _knows_commits(view))


def _handed(channel: Channel) -> bool:
    """True when a command in the channel hands announced ranges on."""
    return bool(channel.commands) and any(command.replay for command in channel.commands)


def _open(view: GroupView, channel: Channel) -> _Open:
    """The announced ranges in a channel, without those that somebody has taken over."""
    owners = view.owners
    all_of = [channel.announced, *(command.replay for command in channel.commands if command.replay)]
    ranges = [each for announced in all_of for each in announced.items()]
    taken = {thread: taken_over(view, thread) for thread in {owners.get(p, _NOBODY).thread for p, _ in ranges}}
    names = set(map(consumer_of, taken)) & view.members.keys() if _told_by_status(view) else set[str]()
    return _Open(
        tuple(each for each in ranges if each[0] not in taken[owners.get(each[0], _NOBODY).thread]),
        {channel.consumer_id: channel, **{name: view.channels.get(name) for name in sorted(names)}},
        frozenset(partition for partition, _ in ranges),
    )


_NOBODY = Owner("", -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """One group's announced ranges that count: partition -> the range that goes with its grant."""

    counting: Mapping[TopicPartition, Announced] = field(default_factory=dict)
    unknown: frozenset[TopicPartition] = frozenset()
    # partitions with ranges whose committed offset is still to be read

    def granted(self, receiver: Member, partition: TopicPartition) -> tuple[int, int] | None:
        """The range that goes with the grant of a partition to this member. A member that cannot be pinged for its
        status is handed none: it could be too many (`core.replay_quota`)."""
        announced = self.counting.get(partition) if receiver.offers >= {REPLAY, PING} else None
        return None if announced is None else (announced.start, announced.end)

    def need(self, channel: Channel) -> bool:
        """True while the channel holds a range that is still to be handed on, and may be nowhere else."""
        if not self.counting and not self.unknown:
            return False
        named = [*channel.announced, *(p for command in channel.commands for p in command.replay)]
        return any(p in self.counting or p in self.unknown for p in named)


def replays(view: GroupView, found: Ranges) -> Replays:
    """Return those of the open ranges that count now."""
    if not found or deleting(view):
        return Replays()
    best = {
        partition: max(counting, key=lambda r: (r.generation, r.end))
        for partition, ranges in sorted(found.items())
        if (counting := [r for r in ranges if _counts(view, partition, r)])
    }
    unknown = frozenset(found.keys() - view.committed.keys()) if _knows_commits(view) else frozenset()
    return Replays(counting=best, unknown=unknown)


def _knows_commits(view: GroupView) -> bool:
    return not view.record.store.tenured


def _counts(view: GroupView, partition: TopicPartition, announced: Announced) -> bool:
    """True when the range begins at the committed offset, and belongs to the present incarnation of its topic. (A topic
    that was created again may have the same committed offset.)"""
    number = view.incarnations.get(partition.topic, 0)
    if number and announced.incarnation not in (0, number):
        return False
    if _knows_commits(view):
        return announced.start == view.committed.get(partition)
    # beside old members topics have no marks, so nothing tells that one is gone
    unmarked = not granted_with_ranges(view) and not announced.incarnation
    return unmarked or not dropped(view, partition)


def kept(view: GroupView, found: Replays) -> tuple[list[SetState], frozenset[tuple[str, str]]]:
    """Return (the change of the state, the refused starts that must stay: consumer, sequence).

    The ranges of refused starts are kept in the state before the starts are removed, until the ranges are handed on or
    over. A start stays while the state has no room for its ranges.
    """
    starts = [
        (name, command)
        for name, channel in sorted(view.channels.items())
        for command in channel.commands
        if command.error is not None and command.replay
    ]
    if not starts and not view.state.replay:
        return [], frozenset()
    wanted = {p: r for p, r in view.state.replay.items() if found.counting.get(p) == r or p in found.unknown}
    over = deleting(view)
    if over:
        wanted.clear()
    room = KEPT_BYTES_MAX - sum(range_bytes(p, r) for p, r in wanted.items())
    waiting: set[tuple[str, str]] = set()
    for name, command in () if over else starts:
        new = {p: r for p, r in sorted(command.replay.items()) if wanted.get(p) != r}
        weight = sum(range_bytes(p, r) for p, r in new.items())
        if wanted and weight > room:
            waiting.add((name, command.sequence))
        else:
            wanted |= new
            room -= weight
    if wanted == view.state.replay:
        return [], frozenset(waiting)
    why = "a refused start had announced ranges" if starts else "announced ranges of the state are handed on, or over"
    state = replace(view.state, replay=wanted)
    return [SetState(state=state, event=StateEvent.REPLAY_KEPT, why=why)], frozenset(waiting)
