"""Eager rebalancing, the draft's way: everybody stops everything before anybody starts anything.

Whether a group is between the two stands in its state (`stopping`), so a failover in the middle changes nothing. It is
raised with the generation, or when something must move for another reason (a group that was switched to eager in the
middle of a cooperative rebalance), and ends with the last owner that lives, or with the switch back to cooperative.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.view import GroupView


def everybody_stops(view: GroupView, target: Mapping[TopicPartition, str], *, raising: bool) -> bool:
    """True while what is owned is stopped and nothing granted: what `stopping` in the state should say."""
    if view.rebalance is not Rebalance.EAGER:
        return False
    living = view.living_threads()
    if raising or view.stopping:
        return bool(living)
    return any(thread in living and target.get(partition) != thread for partition, (thread, _) in view.owners.items())
