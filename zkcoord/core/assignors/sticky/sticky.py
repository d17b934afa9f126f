"""Even loads, then least movement, and stable: the assignor of groups that ask for no other.

Threads that may read the same topics form a *class*. A group with one class is uniform. `uniform`, `mixed` and, with
weights, capacities or racks, `weighted` follow one scheme, which makes the answer stable:

1. Subscribers and partitions alone fix the shapes that an answer may have. Owners never do.
2. Pairs (partition, thread) are taken greedily: first the owned ones, then any others, both in a canonical order. A
   pair is taken if some answer of an allowed shape contains it together with all pairs taken before.

A tree on the way to the target differs from the first tree in two ways: some pairs of the target are owned now
(granted), and some owned pairs outside of it are gone (released). A pair that was refused before still comes after the
pairs that refused it, and pairs of the target never exclude each other. So the walk takes the same pairs again. In
particular, the target itself yields the target.

The thread that an outstanding stop names is no input, and must not be one. After the stop is acknowledged and before
the partition is granted, no node names that thread; that tree must yield the same target as the one before. The thread
that a stop of this target names is found again without it.

Partitions are ordered by number, then topic, so that a share mixes topics. Threads are ordered by number, then
consumer, so that a remainder goes to different consumers. The former owner of a released partition is unknown, so an
answer that used it could not be stable: a partition that must move does not prefer other threads of its old consumer.
"""

from __future__ import annotations

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.sticky.classes import classes_of
from zkcoord.core.assignors.sticky.mixed import assign_mixed
from zkcoord.core.assignors.sticky.racks import racks_that_count
from zkcoord.core.assignors.sticky.uniform import assign_uniform
from zkcoord.core.assignors.sticky.weighted import WORK_MAX, assign_weighted
from zkcoord.core.model import TopicPartition


def assign_sticky(given: AssignorInput, *, work_max: int = WORK_MAX) -> dict[TopicPartition, str]:
    """Balance first, then least movement. `uniform`, `mixed` and `weighted` define what that means.

    Deterministic: the order of subscribers, topics and owners, and the hash seed, change nothing. `work_max` limits the
    work of a group with weights.
    """
    classes = classes_of(given.subscribers, given.partitions)
    if not classes:
        return {}
    racks = racks_that_count(given)
    if racks or _weighted(given):
        return assign_weighted(classes, given, racks, work_max)
    if len(classes) == 1:
        return assign_uniform(classes[0], given)
    return assign_mixed(classes, given)


def _weighted(given: AssignorInput) -> bool:
    """True when partitions or consumers differ in weight or capacity."""
    weights = set(given.weights.values()) - {1}
    return bool(weights) or any(member.capacity is not None for member in given.subscribers)
