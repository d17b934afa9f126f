"""Eager rebalancing, the draft's way: everybody stops everything before anybody starts anything.

Whether a group is between the two stands in its state (`stopping`), so a failover in the middle changes nothing. It is
raised with the generation, or when something must move for another reason (a group that was switched to eager in the
middle of a cooperative rebalance), and ends with the last owner that lives, or with the switch back to cooperative. A
hold or a pause clears it; when that is taken back while somebody is still stopping, it stands again.
"""

from __future__ import annotations

from zkcoord.core.difference import Pairs
from zkcoord.core.model import Rebalance, consumer_of
from zkcoord.core.topics import recreated
from zkcoord.core.view import STOP, GroupView


def everybody_stops(view: GroupView, misplaced: Pairs, *, raising: bool) -> bool:
    """True while what is owned is stopped and nothing granted: what `stopping` in the state should say.

    `misplaced`: what is owned and wanted elsewhere, with the thread that owns it.
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
                return True  # it is still to stop that
    return False
