"""Sticky shares for a group whose threads may read different topics.

`levels` fixes how many partitions of each topic go to each class, from subscribers and partitions alone. Within a class
threads are interchangeable, so every choice that keeps to these numbers, and to even shares within each class, can be
completed: whether an owner may keep a partition is a look at two counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from zkcoord.core.assignors.classes import ThreadClass, canonical
from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.levels import level_shares
from zkcoord.core.model import TopicPartition


def assign_mixed(classes: list[ThreadClass], given: AssignorInput) -> dict[TopicPartition, str]:
    """The most even loads there are, then little movement within what `levels` fixes by class and topic."""
    shares = _Shares(classes, given)
    answer: dict[TopicPartition, str] = {}
    pool: list[TopicPartition] = []
    for topic, partition in canonical({topic for group in classes for topic in group.topics}, given.partitions):
        pair = TopicPartition(topic, partition)
        owner = given.owned.get(pair)
        if owner is not None and shares.take(topic, owner):
            answer[pair] = owner
        else:
            pool.append(pair)
    for index, pairs in enumerate(shares.by_class(pool)):
        answer.update(zip(pairs, shares.places(index), strict=True))
    return answer


class _Shares:
    """The counters of one run: what each class may still take of each topic, and what each thread has so far."""

    def __init__(self, classes: list[ThreadClass], given: AssignorInput) -> None:
        self._classes = classes
        self._room = level_shares(classes, {t: len(given.partitions[t]) for group in classes for t in group.topics})
        totals = [sum(room.values()) for room in self._room]
        self._quotient = [total // len(group.threads) for total, group in zip(totals, classes, strict=True)]
        self._remainder = [total % len(group.threads) for total, group in zip(totals, classes, strict=True)]
        self._load = {thread: 0 for group in classes for thread in group.threads}
        self._class_of = {thread: index for index, group in enumerate(classes) for thread in group.threads}

    def take(self, topic: str, thread: str) -> bool:
        """Give one partition of `topic` to `thread`, if an allowed answer contains this and all that was given."""
        index = self._class_of.get(thread)
        if index is None or self._room[index].get(topic, 0) == 0:
            return False
        load = self._load[thread]
        if load >= self._quotient[index]:
            if load > self._quotient[index] or self._remainder[index] == 0:
                return False
            self._remainder[index] -= 1
        self._load[thread] = load + 1
        self._room[index][topic] -= 1
        return True

    def by_class(self, pool: list[TopicPartition]) -> list[list[TopicPartition]]:
        """`pool` (in canonical order) laid along the room that classes have left; each part in canonical order."""
        rows = {topic: self._room_left(topic) for topic in {pair.topic for pair in pool}}
        parts: list[list[TopicPartition]] = [[] for _ in self._classes]
        for pair in pool:
            parts[next(rows[pair.topic])].append(pair)
        return parts

    def _room_left(self, topic: str) -> Iterator[int]:
        """The classes in order, each as often as it may still take a partition of `topic`."""
        for index, room in enumerate(self._room):
            yield from repeat(index, room.get(topic, 0))

    def places(self, index: int) -> Iterator[str]:
        """The threads of a class in canonical order, each as often as it may still take a partition."""
        quotient, remainder = self._quotient[index], self._remainder[index]
        for thread in self._classes[index].threads:
            open_places = quotient - self._load[thread]
            if open_places >= 0 and remainder:
                remainder -= 1
                open_places += 1
            yield from repeat(thread, max(open_places, 0))
