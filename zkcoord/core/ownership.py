"""What owners mean for a coordinator's decisions in each layout: a partition is available, was given back, or has a
claim to delete.

Where owners are claims, the claims of an evicted consumer exist as long as its session goes on. The consumer may read
until the grace in its mark is over. After that the coordinator deletes its claims, each only if the partition's offset
is unchanged. The reason: two claims of one partition look the same, and the next owner's acknowledgement sets the
offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.decisions import DeleteClaims
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import GroupView, Owner


def available(view: GroupView, timeouts: AckTimeouts, owner: Owner | None, now_ms: int) -> bool:
    """True when the owner node is absent or empty, or names a registration that is gone and whose grace is over.

    An owner node that names no thread belongs to nobody and is not free: somebody overwrote it, perhaps under a reader.
    Where owners are claims, an existing claim is never available: nobody else could claim the partition.
    """
    if owner is not None and view.claims and claimed(owner):
        return False
    if owner is None or not owner.thread:
        return True
    holder = consumer_of(owner.thread)
    return holder != "" and holder not in view.members and not timeouts.in_grace(view, holder, now_ms)


def given_back(view: GroupView, partitions: Iterable[TopicPartition]) -> bool:
    """True when the owners show that these partitions were given back. Claims do not show it: they may have gone with
    their session."""
    return not view.claims and not any(view.owners[p].thread for p in partitions if p in view.owners)


def granted_with_ranges(view: GroupView) -> bool:
    """True when every owner was handed what others had announced of its partition: the grant that set the owner did so.
    A claim may be made without a grant, beside old members."""
    return not view.claims


def claims_of_evicted(view: GroupView) -> dict[str, list[TopicPartition]]:
    """The claims that exist though their consumers were evicted, by consumer."""
    found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    evicted = {c for c, channel in view.channels.items() if channel.evicted_ms is not None and c not in view.members}
    if view.claims and evicted:
        for partition, owner in sorted(view.owners.items()):
            holder = consumer_of(owner.thread)
            if claimed(owner) and holder in evicted:
                found[holder].append(partition)
    return dict(found)


def claimed(owner: Owner) -> bool:
    """True for an owner whose node exists."""
    return owner.version >= 0


def claims_to_delete(view: GroupView, timeouts: AckTimeouts, now_ms: int) -> list[DeleteClaims]:
    """Delete the claims of evicted consumers whose grace is over, once their offsets are known."""
    return [
        DeleteClaims(
            consumer_id=consumer_id,
            partitions={p: view.claim_offsets[p] for p in partitions if p in view.claim_offsets},
            why="its consumer was evicted, its grace is over, and its session goes on",
        )
        for consumer_id, partitions in sorted(claims_of_evicted(view).items())
        if not timeouts.in_grace(view, consumer_id, now_ms) and any(p in view.claim_offsets for p in partitions)
    ]
