"""Limits the partitions that leave a living owner by one raise: the policy `max_moves` of a group's record.

A raise under a budget has a target of its own: the assignor's, but a partition that a living member reads and that
stands behind `until` stays where it is. Partitions are compared by number, then topic; `until` stands in the state
beside the digest, None lets nothing move. What is free, is under a stop, or has a dead owner is the assignor's at once:
recovery is never limited, and nothing that is under way is turned back.

The next raise moves `until` on, over the next `max_moves` moves, as soon as the group is at rest at this one's target.
A raise for another reason, while it is not, lets nothing move: first recovery, then balance. So it comes to rest at the
assignor's own target, and a coordinator that takes over in the middle reads the same `until` and the same target,
because an assignor answers the same on every tree on the way to its answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.assignors.sticky.classes import canonical_key
from zkcoord.core.difference import Pairs
from zkcoord.core.model import Rebalance, TopicPartition, consumer_of
from zkcoord.core.view import STOP, GroupView


def limited(view: GroupView) -> bool:
    """True when the group's record limits the moves of a raise; an eager group stops everything, whatever it says."""
    return view.record.policy.max_moves is not None and view.record.rebalance is not Rebalance.EAGER


def moves(view: GroupView, wanted: Mapping[TopicPartition, str], misplaced: Pairs) -> dict[TopicPartition, str]:
    """Partitions that living members read and the target gives to others, in order, with the present thread.

    Partitions under a stop are left out.

    `misplaced`: of the difference between the owners and `wanted`.
    """
    found = {p: thread for p, thread in misplaced if p in wanted and consumer_of(thread) in view.members}
    under_way = {
        partition
        for consumer_id in {consumer_of(thread) for thread in found.values()}
        if (channel := view.channels.get(consumer_id)) is not None
        for command in channel.commands
        if command.option == STOP
        for partition in (found if command.threads is None else command.threads)
        if consumer_of(found.get(partition, "")) == consumer_id  # else it was released early, and is another's by now
    }
    return {p: found[p] for p in sorted(found.keys() - under_way, key=canonical_key)}


def waiting(moving: Mapping[TopicPartition, str], until: TopicPartition | None) -> dict[TopicPartition, str]:
    """Those of `moving` that stand behind `until`."""
    if until is None:
        return dict(moving)
    last = canonical_key(until)
    return {partition: thread for partition, thread in moving.items() if canonical_key(partition) > last}
