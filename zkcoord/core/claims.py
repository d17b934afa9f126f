"""Claims of consumers that were evicted: their sessions may go on, and then their claims stand.

While its mark's grace goes on an evicted consumer may still read. Afterwards the coordinator deletes its claims, each
only while the partition's offset is as it was: two claims of one partition look the same, and the next owner's
acknowledgement sets the offset.
"""

from __future__ import annotations

from collections import defaultdict

from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.decisions import DeleteClaims
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import GroupView, Owner


def claims_of_evicted(view: GroupView) -> dict[str, list[TopicPartition]]:
    """The claims that stand though their consumers were evicted, by consumer."""
    found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    evicted = {c for c, channel in view.channels.items() if channel.evicted_ms is not None and c not in view.members}
    if view.claims and evicted:
        for partition, owner in sorted(view.owners.items()):
            holder = consumer_of(owner.thread)
            if claimed(owner) and holder in evicted:
                found[holder].append(partition)
    return dict(found)


def claimed(owner: Owner) -> bool:
    """True of an owner whose node stands."""
    return owner.version >= 0


def claims_to_delete(view: GroupView, timeouts: AckTimeouts, now_ms: int) -> list[DeleteClaims]:
    """Delete the claims of those whose grace is over, once the offsets are known."""
    return [
        DeleteClaims(
            consumer_id=consumer_id,
            partitions={p: view.claim_offsets[p] for p in partitions if p in view.claim_offsets},
            why="its consumer was evicted, its grace is over, and its session goes on",
        )
        for consumer_id, partitions in sorted(claims_of_evicted(view).items())
        if not timeouts.in_grace(view, consumer_id, now_ms) and any(p in view.claim_offsets for p in partitions)
    ]
