"""The group's offset store: which members can use it, which members are told to, and when a step to another store is
done.

The group's record names the store, and the number of the step that led to it. Each member is told both by an
`offset-store`, and says in its status which one it obeyed last. A member first obeys everything in its channel. So it
has *come to* a store when its status names the store, or the last `offset-store` in its channel does.

A member that was never told uses ZooKeeper. So in a group that was never moved, nobody is told anything.
"""

from __future__ import annotations

from typing import NamedTuple

from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.decisions import ChangeStore
from zkcoord.core.model import consumer_of
from zkcoord.core.offset_store import ZOOKEEPER
from zkcoord.core.record import GroupRecord
from zkcoord.core.view import OFFSET_STORE, REJECT, START, Channel, GroupView, Member
from zkcoord.core.words import some

"""Number of members that a problem names one by one."""


class StoreStep(NamedTuple):
    """An offset store, and the number of the step to it."""

    name: str
    step: int


def can_use(member: Member, store: str) -> bool:
    """True when a member can keep its offsets there. A member that names no store can use only ZooKeeper."""
    if store not in (member.stores or (ZOOKEEPER,)):
        return False
    return store == ZOOKEEPER or OFFSET_STORE in member.offers


def come_to(channel: Channel) -> StoreStep:
    """The store that the consumer uses once it has obeyed everything in its channel."""
    for command in reversed(channel.commands):
        if command.option == OFFSET_STORE and command.error is None:
            return StoreStep(command.store_name, command.store_step)
    return StoreStep(channel.store_name, channel.store_step)


def _is_there(record: GroupRecord, known: StoreStep) -> bool:
    if record.store_name == ZOOKEEPER:
        return known.name in ("", ZOOKEEPER)
    return known == (record.store_name, record.store_step)


def may_start(view: GroupView, consumer_id: str) -> bool:
    """True when the receiver of a start will be at the record's store when it obeys the start."""
    return _is_there(view.record, come_to(view.channels[consumer_id]))


def store_changes(view: GroupView, timeouts: AckTimeouts, now_ms: int) -> list[ChangeStore]:
    """Tell members to use the record's store: those that can use it and were not told yet. A member has one such
    command at a time."""
    record = view.record
    found = []
    for consumer_id in sorted(view.members.keys() & view.channels.keys()):
        member, channel = view.members[consumer_id], view.channels[consumer_id]
        if _is_there(record, come_to(channel)) or channel.status_unreadable or channel.evicted_ms is not None:
            continue
        if OFFSET_STORE not in member.offers or not can_use(member, record.store_name):
            continue
        if channel.outstanding(OFFSET_STORE) or channel.outstanding(REJECT):
            continue
        if not timeouts.control_backs_off(consumer_id, now_ms):
            found.append(consumer_id)
    why = f"the group's offset store is {record.store_name!r} (step {record.store_step})"
    return [ChangeStore(consumer_id=c, store=record.store_name, step=record.store_step, why=why) for c in found]


def lagging(view: GroupView) -> dict[str, str]:
    """The members that have not come to the record's store, each with the reason. Empty: the step to it is done.

    A member that cannot use the store is given nothing, so it counts only while it may still read. Old members never
    come to a store: beside them no step is made.
    """
    found = {}
    for consumer_id, member in sorted(view.members.items()):
        if not (member.speaks_protocol or view.mode.coordinated):
            continue
        reason = _why_lagging(view, member, view.channels.get(consumer_id))
        if reason:
            found[consumer_id] = reason
    return found


def _why_lagging(view: GroupView, member: Member, channel: Channel | None) -> str:
    record = view.record
    if channel is None or not can_use(member, record.store_name):
        return f"cannot use {record.store_name!r}, and may still read" if _may_read(view, member, channel) else ""
    starts = [command for command in channel.commands if command.option == START]
    if any((command.store_name or ZOOKEEPER) != record.store_name for command in starts):
        return "is still to start partitions with another store"
    if _is_there(record, StoreStep(channel.store_name, channel.store_step)):
        return ""
    if channel.status_unreadable:
        return "has a status that nobody can read: its consumer must be mended"
    return "has not obeyed yet" if channel.outstanding(OFFSET_STORE) else "was not told yet"


def _may_read(view: GroupView, member: Member, channel: Channel | None) -> bool:
    if channel is not None and (channel.held or channel.outstanding(START)):
        return True
    return any(consumer_of(owner.thread) == member.consumer_id for owner in view.owners.values() if owner.thread)


def store_problem(view: GroupView) -> str | None:
    """The members that are given nothing because they cannot use the group's store, and who must act."""
    store = view.record.store_name
    unable = sorted(c for c in view.members.keys() & view.channels.keys() if not can_use(view.members[c], store))
    if not unable:
        return None
    named = some(unable)
    act = "give them bootstrap servers, or upgrade them"
    if store == ZOOKEEPER:
        act = "start them with ZooKeeper among their offset stores"
    back = "" if store == ZOOKEEPER else f", or run `zkcoord offsets migrate {view.group} --to {ZOOKEEPER}`"
    return f"members cannot use the group's offset store {store!r}, and are given nothing ({named}): {act}{back}"
