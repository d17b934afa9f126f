"""Eager rebalancing, the draft's way: all members stop everything before any member starts anything.

The state says whether a group is between the two (`stopping`), so a failover in between changes nothing. `stopping` is
set with the raise of the generation, or when something must move for another reason (a group was switched to eager
during a cooperative rebalance). It is cleared when no living member owns anything, or with the switch back to
cooperative. A hold or a pause clears it; if that ends while a member is still stopping, it is set again.
"""

from __future__ import annotations

from zkcoord.core.difference import Pairs
from zkcoord.core.model import Rebalance, consumer_of
from zkcoord.core.topics import recreated
from zkcoord.core.view import STOP, GroupView


def everybody_stops(view: GroupView, misplaced: Pairs, *, raising: bool) -> bool:
    """True while everything owned is to be stopped, and nothing granted. This is the value that `stopping` should have.

    `misplaced` holds the partitions that the target gives to another thread, each with the thread that owns it.
    """
    if view.record.rebalance is not Rebalance.EAGER:
        return False
    if raising or view.state.stopping:
        return bool(view.living_threads())
    if any(consumer_of(thread) in view.members for thread in {thread for _, thread in misplaced}):
        return True
    again = recreated(view)
    for name in view.members:
        channel = view.channels.get(name)
        stops = [c for c in channel.commands if c.option == STOP] if channel is not None else []
        for partition in (p for stop in stops for p in (view.owners if stop.threads is None else stop.threads)):
            owner = view.owners.get(partition)
            if owner is not None and consumer_of(owner.thread) == name and partition.topic not in again:
                return True  # the member has not stopped this one yet
    return False
