"""Least movement, evenly spread, and stable: the assignor that groups use unless they ask for another.

Threads that may read the same topics form a *class*; a group with one class is uniform. `uniform`, `mixed` and,
with weights, capacities or racks, `weighted` follow one scheme, which is what makes the answer stable:

1. The shapes that an answer may have are fixed by subscribers and partitions alone, never by who owns what.
2. Pairs (partition, thread) are taken greedily, first the owned ones, then any others, both in a canonical order; a
   pair is taken when some answer of an allowed shape contains it and all that was taken before.

A tree on the way to the target differs from the first tree in two ways: pairs of the target have moved up in the order
(granted), and owned pairs outside of it have vanished (released). A pair that was refused before is still preceded by
the pairs that refused it, and the target's pairs never exclude each other, so the walk takes the same pairs again. In
particular the target itself yields the target.

The thread that an outstanding stop names is not asked for, and must not be: a partition whose stop was acknowledged and
that was not granted yet has no such thread any more, and that tree has to yield the same target as the one before. The
thread that a stop of this target names is found again without it.

Partitions are ordered by number, then topic, so that a share mixes topics; threads by number, then consumer, so that
what does not divide evenly goes to different consumers. The former owner of a released partition is unknown, so an
answer that looked at it could not be stable: a partition that must move is not drawn to its consumer's other threads.
"""

from __future__ import annotations

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.sticky.classes import classes_of
from zkcoord.core.assignors.sticky.mixed import assign_mixed
from zkcoord.core.assignors.sticky.racks import racks_that_count
from zkcoord.core.assignors.sticky.uniform import assign_uniform
from zkcoord.core.assignors.sticky.weighted import assign_weighted
from zkcoord.core.model import TopicPartition


def assign_sticky(given: AssignorInput) -> dict[TopicPartition, str]:
    """Balance first, then least movement; `uniform`, `mixed` and `weighted` say what that means.

    Deterministic: the order of subscribers, topics and owners, and the hash seed, change nothing.
    """
    classes = classes_of(given.subscribers, given.partitions)
    if not classes:
        return {}
    racks = racks_that_count(given)
    if racks or _weighted(given):
        return assign_weighted(classes, given, racks)
    if len(classes) == 1:
        return assign_uniform(classes[0], given)
    return assign_mixed(classes, given)


def _weighted(given: AssignorInput) -> bool:
    """True when partitions or consumers differ: by weights, or by capacities."""
    weights = set(given.weights.values()) - {1}
    return bool(weights) or any(member.capacity is not None for member in given.subscribers)
