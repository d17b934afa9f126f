"""Sticky shares for a group whose threads may read different topics.

A distribution is allowed if its loads are the most even ones possible (`max_flow`). Owners keep their partitions, in
canonical order, as long as an allowed distribution contains everything that is kept (`residual_graph`). The rest goes
to classes by numbers that follow from what is kept, and within topic and class along canonical rows.

Guarantees: the loads are the most even ones possible; every tree on the way to a target yields the target; no owned
partition that moves could have stayed beside all that stay. So nothing can be added to the partitions that stay. But
their number is not always the largest possible, because one that stays may force two others to move (in random tiny
groups 0.7 % more moves than the least).

Cost: the partitions, plus work on the graph of classes and topics. A few hundred different subscriptions cost little
beside the partitions. 1,000 members with a different subscription each cost 0.2 s; many thousands cost seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, repeat, starmap
from typing import cast

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.sticky.classes import ThreadClass, canonical, owned_among
from zkcoord.core.assignors.sticky.max_flow import Flow
from zkcoord.core.assignors.sticky.residual_graph import ResidualGraph
from zkcoord.core.model import TopicPartition, as_partitions


def assign_mixed(classes: list[ThreadClass], given: AssignorInput) -> dict[TopicPartition, str]:
    """Return the most even loads with little movement (see above)."""
    sizes = {topic: len(given.partitions[topic]) for group in classes for topic in group.topics}
    base = Flow(classes, sizes).settle()
    order = canonical(sizes, given.partitions)
    owners = list(map(cast(Mapping[tuple[str, int], str], given.owned).get, order))
    if len(owners) - owners.count(None) == len(given.owned):
        answer = dict(given.owned)
    else:
        answer = owned_among(given.owned, classes, given.partitions)
    graph = ResidualGraph(classes, base, *_held(classes, order, owners))
    pool = as_partitions(graph.walk(order, owners))
    rooms = graph.complete(base)
    for index, pairs in enumerate(_parts(rooms, pool)):
        answer.update(zip(pairs, _places(graph.loads(index), len(pairs)), strict=True))
    return answer


def _held(
    classes: list[ThreadClass], order: list[tuple[str, int]], owners: list[str | None]
) -> tuple[list[dict[str, int]], list[int]]:
    """Return (for each class, topic -> the number of partitions that its threads hold and may read; the classes).

    Topics and classes are ordered by when the walk reaches the last of their partitions, the latest first. Most
    partitions to give up are there, so a first distribution that takes from there needs few detours.
    """
    class_of: dict[str | None, int] = {thread: index for index, group in enumerate(classes) for thread in group.threads}
    keys = list(zip((pair[0] for pair in order), map(class_of.get, owners), strict=True))
    last = dict(zip(keys, range(len(keys)), strict=True))
    numbers = Counter(keys)
    held = [
        {
            topic: numbers[topic, index]
            for topic in sorted(group.topics, key=lambda topic: last.get((topic, index), -1), reverse=True)
            if (topic, index) in last
        }
        for index, group in enumerate(classes)
    ]
    lasts = [last[next(iter(counts)), index] if counts else -1 for index, counts in enumerate(held)]
    return held, sorted(range(len(classes)), key=lasts.__getitem__, reverse=True)


def _parts(rooms: list[dict[str, int]], pool: list[TopicPartition]) -> list[list[TopicPartition]]:
    """Lay `pool` (in canonical order) along the rooms of the classes. Each returned part is in canonical order."""
    open_at: dict[str, list[tuple[int, int]]] = {}  # topic -> (class, room), the classes in order
    for index, room in enumerate(rooms):
        for topic, count in room.items():
            open_at.setdefault(topic, []).append((index, count))
    rows = {topic: chain.from_iterable(starmap(repeat, row)) for topic, row in open_at.items()}
    parts: list[list[TopicPartition]] = [[] for _ in rooms]
    for pair in pool:
        parts[next(rows[pair.topic])].append(pair)
    return parts


def _places(loads: Mapping[str, int], count: int) -> Iterator[str]:
    """Yield the threads of a class in canonical order, each once for every partition that it takes of `count` more."""
    quotient, remainder = divmod(sum(loads.values()) + count, len(loads))
    remainder -= sum(load > quotient for load in loads.values())
    for thread, load in loads.items():
        if load <= quotient:
            more = 1 if remainder > 0 else 0
            remainder -= more
            yield from repeat(thread, quotient + more - load)
