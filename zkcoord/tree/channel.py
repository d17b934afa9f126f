"""Writes that remove a consumer's registration, its channel, or a command that it refused; and the poke.

Each is guarded by the versions from which it was decided: the consumer may be acknowledging or registering at the same
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zkcoord.core.command import Option
from zkcoord.core.decisions import DeleteClaims, EvictMember, RemoveRefused
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import Channel, GroupView
from zkcoord.tree.evicted import encode_evicted
from zkcoord.tree.paths import EVICTED_MARK, REFUSED_MARK, Layout
from zkcoord.tree.registration import MARKER, POKE, Registration, encode_registration
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, CreateNode, DeleteNode, Write, parts


def evict(decision: EvictMember, view: GroupView, layout: Layout) -> list[Write]:
    """Delete the registration and mark the channel, if the command that was not obeyed is still in the channel."""
    channel, member = view.channels[decision.consumer_id], view.members[decision.consumer_id]
    path = layout.channel(view.group, decision.consumer_id)
    guard = CheckNode(path, channel.version)
    if decision.sequence is not None:
        command = next(c for c in channel.commands if c.sequence == decision.sequence)
        guard = CheckNode(f"{path}/{command.sequence}", command.version)
    owned = [p for p, owner in view.owners.items() if consumer_of(owner.thread) == decision.consumer_id]
    mark = encode_evicted(decision.session_timeout_ms, layout.ownership.noted(owned))
    return [
        guard,
        DeleteNode(layout.registration(view.group, decision.consumer_id), member.version),
        CreateNode(f"{path}/{EVICTED_MARK}", mark),
    ]


def poke(group: str, epoch: int, layout: Layout) -> list[Write]:
    """Register a consumer without topics and remove it in the same transaction. Each old member rebalances once, and
    none finds the registration in its list. (Reading a listed registration that is gone would be a failed attempt.)"""
    path = layout.registration(group, f"{group}_{POKE}-{epoch}")
    data = encode_registration(Registration(subscription={}, coordination=MARKER, timestamp="0"))
    return [CreateNode(path, data, ephemeral=True), DeleteNode(path, 0)]


def delete_claims(
    decision: DeleteClaims, partitions: Iterable[TopicPartition], view: GroupView, layout: Layout
) -> list[Write]:
    """Delete these claims, each only if the offset is unchanged: else it may be another consumer's claim."""
    writes: list[Write] = []
    for partition in partitions:
        writes += layout.ownership.guard_free(layout.offset(view.group, partition), decision.partitions[partition])
        writes.append(layout.ownership.free(layout.owner(view.group, partition), view.owners[partition].version))
    return writes


def purge(channel: Channel, group: str, layout: Layout) -> Iterator[list[Write]]:
    """Delete the channel of a former member, with its commands: in several multis, the channel last.

    A consumer that hung may have left thousands of commands, more than one multi takes. If the coordinator dies in
    between, the next one finds the channel, and removes the rest.
    """
    path = layout.channel(group, channel.consumer_id)
    commands = [DeleteNode(f"{path}/{c.sequence}", c.version) for c in channel.commands]
    pieces: list[list[Write]] = [[*piece] for piece in parts(commands, lambda w: len(w.path) + WRITE_BYTES)] or [[]]
    *earlier, last = pieces
    for piece in earlier:
        yield [CheckNode(path, channel.version), *piece]
    if channel.refused_mark:
        last.append(DeleteNode(f"{path}/{REFUSED_MARK}", 0))
    if channel.evicted_ms is not None:
        last.append(DeleteNode(f"{path}/{EVICTED_MARK}", 0))
    yield [*last, DeleteNode(path, channel.version)]


def remove_refused(decision: RemoveRefused, view: GroupView, layout: Layout) -> list[Write]:
    """Delete a refused command, and take back what its start granted. The last such write also deletes the mark."""
    channel = view.channels[decision.consumer_id]
    command = next(c for c in channel.commands if c.sequence == decision.sequence)
    path = layout.channel(view.group, decision.consumer_id)
    writes: list[Write] = []
    starting = command.option == Option.START_FETCHER.value  # a stop names threads, too, but its consumer reads on
    for partition, thread in sorted((command.threads or {}).items()) if starting else ():
        owner = view.owners.get(partition)
        if owner is not None and owner.thread == thread and consumer_of(thread) == decision.consumer_id:
            writes += layout.ownership.withdraw(layout.owner(view.group, partition), owner.version)
    writes.append(DeleteNode(f"{path}/{command.sequence}", command.version))
    if channel.refused_mark and sum(c.error is not None for c in channel.commands) == 1:
        writes.append(DeleteNode(f"{path}/{REFUSED_MARK}", 0))
    return writes
