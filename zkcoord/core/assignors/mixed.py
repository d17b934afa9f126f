"""Sticky shares for a group whose threads may read different topics.

Allowed are all distributions whose loads are the most even there are (`levels`). Owners keep their partitions, in
canonical order, as long as an allowed distribution holds all that is kept (`witness`). What is left goes to classes by
numbers that follow from what is kept, and within topic and class along canonical rows.

Holds: the loads are the most even there are; every tree on the way to a target yields the target; no owned partition
that moves could have stayed beside all that stays. Movement is therefore minimal in the sense that nothing can be added
to what stays; it is not always the least number there is: one that stays may send two others away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import cast

from zkcoord.core.assignors.classes import ThreadClass, canonical
from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.levels import Flow
from zkcoord.core.assignors.witness import Witness
from zkcoord.core.model import TopicPartition


def assign_mixed(classes: list[ThreadClass], given: AssignorInput) -> dict[TopicPartition, str]:
    """The most even loads there are, then little movement (see above)."""
    sizes = {topic: len(given.partitions[topic]) for group in classes for topic in group.topics}
    order = canonical(sizes, given.partitions)
    owners = list(map(cast(Mapping[tuple[str, int], str], given.owned).get, order))
    base = Flow(classes, sizes).settle()
    held = _held(classes, order, owners)
    witness = Witness(classes, Flow(classes, sizes).settle(held), held)
    answer: dict[TopicPartition, str] = {}
    pool: list[TopicPartition] = []
    for pair, owner in zip(order, owners, strict=True):
        if owner is not None and witness.keep(pair[0], owner):
            answer[TopicPartition(*pair)] = owner
        else:
            pool.append(TopicPartition(*pair))
    rooms = witness.complete(base)
    for index, pairs in enumerate(_parts(rooms, pool)):
        answer.update(zip(pairs, _places(classes[index], witness, len(pairs)), strict=True))
    return answer


def _held(
    classes: list[ThreadClass], order: list[tuple[str, int]], owners: list[str | None]
) -> list[Mapping[str, int]]:
    """By class: topic to the number of partitions that its threads hold and may read."""
    class_of = {thread: index for index, group in enumerate(classes) for thread in group.threads}
    counts: list[Counter[str]] = [Counter() for _ in classes]
    numbers = Counter((pair[0], class_of.get(owner, -1)) for pair, owner in zip(order, owners, strict=True) if owner)
    for (topic, index), number in numbers.items():
        if index >= 0 and topic in classes[index].topics:
            counts[index][topic] = number
    return list(counts)


def _parts(rooms: list[dict[str, int]], pool: list[TopicPartition]) -> list[list[TopicPartition]]:
    """`pool` (in canonical order) laid along the room that classes have; each part in canonical order."""
    rows = {topic: _row(rooms, topic) for topic in {pair.topic for pair in pool}}
    parts: list[list[TopicPartition]] = [[] for _ in rooms]
    for pair in pool:
        parts[next(rows[pair.topic])].append(pair)
    return parts


def _row(rooms: list[dict[str, int]], topic: str) -> Iterator[int]:
    """The classes in order, each as often as it has room for a partition of `topic`."""
    for index, room in enumerate(rooms):
        yield from repeat(index, room.get(topic, 0))


def _places(group: ThreadClass, witness: Witness, count: int) -> Iterator[str]:
    """The threads of a class in canonical order, each as often as it is to take one of `count` more partitions."""
    loads = list(map(witness.load.__getitem__, group.threads))
    quotient, remainder = divmod(sum(loads) + count, len(loads))
    remainder -= sum(load > quotient for load in loads)
    for thread, load in zip(group.threads, loads, strict=True):
        if load <= quotient:
            more = 1 if remainder > 0 else 0
            remainder -= more
            yield from repeat(thread, quotient + more - load)
