"""Limits the partitions that one raise of the generation takes from living owners: the policy `max_moves` of a group's
record.

A raise under a budget has a target of its own. It is the assignor's target, except that partitions of living members
stay where they are if they come after `until`. Partitions are ordered by number, then topic. `until` is in the state
beside the digest; None lets nothing move. A partition that is free, under a stop, or owned by a dead member goes to the
assignor's choice at once: recovery is never limited, and nothing under way is turned back.

The next raise moves `until` forward, over the next `max_moves` moves, as soon as the group is at rest at this target. A
raise for another reason before that lets nothing move: first recovery, then balance. So the group comes to rest at the
assignor's own target. A coordinator that takes over in the middle reads the same `until` and computes the same target,
because an assignor gives the same answer on every tree on the way to its answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.assignors.sticky.classes import canonical_key
from zkcoord.core.difference import Pairs
from zkcoord.core.model import Rebalance, TopicPartition, consumer_of
from zkcoord.core.view import STOP, GroupView


def limited(view: GroupView) -> bool:
    """True when the group's record limits the moves of a raise. In an eager group it does not count, since everything
    is stopped."""
    return view.record.policy.max_moves is not None and view.record.rebalance is not Rebalance.EAGER


def moves(view: GroupView, wanted: Mapping[TopicPartition, str], misplaced: Pairs) -> dict[TopicPartition, str]:
    """Partitions that living members read and the target gives to others, in order, each with its present thread.

    Partitions under a stop are left out.

    `misplaced` is that of the difference between the owners and `wanted`.
    """
    found = {p: thread for p, thread in misplaced if p in wanted and consumer_of(thread) in view.members}
    under_way = {
        partition
        for consumer_id in {consumer_of(thread) for thread in found.values()}
        if (channel := view.channels.get(consumer_id)) is not None
        for command in channel.commands
        if command.option == STOP
        for partition in (found if command.threads is None else command.threads)
        # else it was released early, and another may own it by now
        if consumer_of(found.get(partition, "")) == consumer_id
    }
    return {p: found[p] for p in sorted(found.keys() - under_way, key=canonical_key)}


def waiting(moving: Mapping[TopicPartition, str], until: TopicPartition | None) -> dict[TopicPartition, str]:
    """Those of `moving` that come after `until`."""
    if until is None:
        return dict(moving)
    last = canonical_key(until)
    return {partition: thread for partition, thread in moving.items() if canonical_key(partition) > last}
