"""From the owners to the target: stops and grants.

Reconciliation is set arithmetic on three maps from partition to thread (KIP-429, KIP-848 in Kafka's words):

    owned   what the owner nodes say             stop   = owned by the living, not where the target has it
    target  what the assignor answered           grant  = available, and in the target
    named   what outstanding commands are about  neither touches what a command of that consumer still names
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from zkcoord.core.decisions import GrantPartitions, ReleaseForDraftMember, StopFetching
from zkcoord.core.memory import Memory
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.ownership import available
from zkcoord.core.replay import Replays
from zkcoord.core.replay_quota import ReplayQuota
from zkcoord.core.stores import may_start
from zkcoord.core.topics import recreated, withheld
from zkcoord.core.view import Channel, GroupView


def stops(view: GroupView, memory: Memory, now_ms: int, *, everything: str = "") -> list[StopFetching]:
    """Stop the partitions that the target gives to others, and those that a consumer reads though their owner was set
    empty. With a reason `everything`, stop all owned partitions."""
    found: dict[str, dict[TopicPartition, str]] = defaultdict(dict)
    target, again = memory.target.assignment, recreated(view)
    moving: Iterable[tuple[TopicPartition, str]] = memory.difference.value.misplaced
    if everything or again:
        moving = (
            (p, thread)
            for p, (thread, _) in view.owners.items()
            if thread and (everything or target.get(p) != thread or p.topic in again)
        )
    owned = ((partition, consumer_of(thread)) for partition, thread in moving)
    for partition, holder in chain(owned, memory.holders.astray.items()):
        channel = view.channels.get(holder)
        if holder not in view.members or channel is None or partition in view.draft_stops:
            continue
        if not channel.names(partition) and not memory.ack_timeouts.backs_off(holder, partition, now_ms):
            found[holder][partition] = target.get(partition, "")
    why = everything or "the target has them elsewhere"
    if again and not everything:
        why += ", or the topic was created again"
    return [StopFetching(consumer_id=c, partitions=dict(sorted(found[c].items())), why=why) for c in sorted(found)]


def grantable(
    view: GroupView, memory: Memory, now_ms: int, but: Container[TopicPartition] = ()
) -> Iterator[tuple[Channel, TopicPartition, str]]:
    """The available partitions of the target `but` these, each with its receiver's channel and its thread."""
    timeouts, owners, not_now = memory.ack_timeouts, view.owners, withheld(view)
    lacking, astray = memory.difference.value.lacking, memory.holders.astray
    receivers = {thread: consumer_of(thread) for thread in {thread for _, thread in lacking}}
    ready = {c for c in set(receivers.values()) if c in view.channels and may_start(view, c)}
    for partition, thread in lacking:
        receiver = receivers[thread]
        channel = view.channels.get(receiver)
        if channel is None or receiver not in view.members or channel.names(partition):
            continue
        if receiver not in ready or partition.topic in not_now or partition in but or partition in astray:
            continue
        if not available(view, timeouts, owners.get(partition), now_ms):
            continue
        if not timeouts.start_backs_off(receiver, partition, now_ms):
            yield channel, partition, thread


class Granted(NamedTuple):
    """The starts that are sent now."""

    decisions: Sequence[GrantPartitions] = ()
    full: frozenset[str] = frozenset()  # members that lack room for announced ranges, so partitions were left out
    lingers_until_ms: int | None = None  # until when starts wait for partitions that others are about to release


def grants(view: GroupView, memory: Memory, announced: Replays, now_ms: int) -> Granted:
    """Grant the available partitions of the target, with their announced ranges.

    A member that gets more within moments waits for it: it obeys one start in less time than several.
    """
    granted: dict[str, dict[TopicPartition, str]] = defaultdict(dict)
    replay: dict[str, dict[TopicPartition, tuple[int, int]]] = defaultdict(dict)
    quota, awaiting, lingering = ReplayQuota(), _awaiting(view, memory, now_ms), set[str]()
    for channel, partition, thread in grantable(view, memory, now_ms, but=announced.unknown):
        receiver = channel.consumer_id
        if receiver in awaiting:
            lingering.add(receiver)
            continue
        found = announced.granted(view.members[receiver], partition) if announced.counting else None
        if found is not None:
            if not quota.takes(view, channel, partition, found):
                continue
            replay[receiver][partition] = found
        granted[receiver][partition] = thread
    why = "available, and in the target"
    decisions = [
        GrantPartitions(consumer_id=c, partitions=dict(sorted(granted[c].items())), replay=replay.get(c, {}), why=why)
        for c in sorted(granted)
    ]
    return Granted(decisions, frozenset(quota.full), min((awaiting[c] for c in lingering), default=None))


def _awaiting(view: GroupView, memory: Memory, now_ms: int) -> dict[str, int]:
    """The members whose partitions of the target others are about to release, each with the time until which that is
    expected."""
    found = dict[str, int]()
    for stop, until_ms in memory.ack_timeouts.fresh_stops(view, now_ms):
        owned = {p: owner.thread for p in stop.threads or () if (owner := view.owners.get(p)) and owner.thread}
        wanted = {memory.target.assignment.get(p, thread) for p, thread in owned.items()} - set(owned.values())
        found.update((c, max(until_ms, found.get(c, 0))) for c in map(consumer_of, wanted))
    return found


def draft_releases(view: GroupView) -> list[ReleaseForDraftMember]:
    """Free the partitions that draft-only members have stopped: no command in their channels names them any more."""
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(view.draft_stops):
        holder = consumer_of(view.owners[partition].thread)
        channel = view.channels.get(holder)
        if holder in view.members and channel is not None and not channel.names(partition):
            found[holder].append(partition)
    why = "its consumer, which knows only the draft, has stopped"
    return [ReleaseForDraftMember(consumer_id=c, partitions=tuple(p), why=why) for c, p in sorted(found.items())]
