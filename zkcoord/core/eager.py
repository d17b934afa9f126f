"""Eager rebalancing, the draft's way: everybody stops everything before anybody starts anything.

Whether a group is between the two stands in its state (`stopping`), so a failover in the middle changes nothing. It is
raised with the generation, or when something must move for another reason (a group that was switched to eager in the
middle of a cooperative rebalance), and ends with the last owner that lives, or with the switch back to cooperative. A
hold or a pause clears it; when that is taken back while somebody is still stopping, it stands again.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.model import Rebalance, TopicPartition, consumer_of
from zkcoord.core.topics import recreated
from zkcoord.core.view import STOP, GroupView


def everybody_stops(view: GroupView, target: Mapping[TopicPartition, str], *, raising: bool) -> bool:
    """True while what is owned is stopped and nothing granted: what `stopping` in the state should say."""
    if view.rebalance is not Rebalance.EAGER:
        return False
    living = view.living_threads()
    if raising or view.stopping:
        return bool(living)
    told = {name for name in view.members if (channel := view.channels.get(name)) and channel.outstanding(STOP)}
    again = recreated(view) if told else frozenset()
    for partition, (thread, _) in view.owners.items():
        if thread in living:
            holder = consumer_of(thread)
            if target.get(partition) != thread:
                return True
            if holder in told and partition.topic not in again and _is_stopping(view, holder, partition):
                return True
    return False


def _is_stopping(view: GroupView, consumer_id: str, partition: TopicPartition) -> bool:
    commands = view.channels[consumer_id].commands
    return any(command.option == STOP and command.names(partition) for command in commands)
