"""How the old high-level consumer deals partitions out round robin. Versions differ only in the order of the
partitions.

Partitions are ordered by the signed 32-bit Java hash of their names. Where hashes are equal (topics `Aa` and `BB`, for
instance) the order is that in which Scala's maps go through the topics; this module uses that of 0.10.2 and later.
Members of 0.8.2 to 0.10.1 that list the topics differently compute different plans there, and can never settle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from zkcoord.core.assignors.contract import AssignorInput, threads_by_topic
from zkcoord.core.assignors.legacy.java_order import java_hash, topics_of_all
from zkcoord.core.assignors.legacy.range import utf16_units
from zkcoord.core.model import TopicPartition


def deal(
    given: AssignorInput, before: str, after: str, topics: Sequence[str] | None = None
) -> dict[TopicPartition, str]:
    """Deal partitions, in the order of the hashes of `<before><topic><after…>`, to threads in string order.

    `before` is the part before the topic in a partition's name. The first character of `after` comes between topic and
    number, the rest after the number: "[" and ",]" make `[clicks,0]`. `topics` is the order of all topics where hashes
    are equal; None is the order of 0.10.2 and later for members that registered in the order of their ids. A thread
    that does not read a partition's topic loses its turn. Present owners change nothing.
    """
    readers = threads_by_topic(given.subscribers, given.partitions)
    threads = sorted(frozenset().union(*readers.values()), key=utf16_units)
    place = {thread: index for index, thread in enumerate(threads)}
    made: dict[frozenset[str], list[int]] = {}  # topics with equal readers share one list
    turns: dict[str, list[int]] = {}  # topic -> places of its threads, ascending
    for topic, allowed in readers.items():
        if allowed not in made:
            made[allowed] = sorted(map(place.__getitem__, allowed))
        turns[topic] = made[allowed]
    answer: dict[TopicPartition, str] = {}
    turn = 0
    for partition in _in_order(given, _hashed(given, readers, before, after), topics):
        places = turns[partition.topic]
        index = bisect_left(places, turn)
        turn = places[index if index < len(places) else 0] + 1
        answer[partition] = threads[turn - 1]
    return answer


def ties(given: AssignorInput, before: str, after: str) -> list[list[TopicPartition]]:
    """The lists of partitions with equal hashes, sorted. `before` and `after` are as in `deal`."""
    readers = threads_by_topic(given.subscribers, given.partitions)
    alike = groupby(sorted(_hashed(given, readers, before, after)), key=itemgetter(0))
    found = [[partition for _, partition in group] for _, group in alike]
    return sorted(group for group in found if len(group) > 1)


def _in_order(
    given: AssignorInput, hashed: list[tuple[int, TopicPartition]], topics: Sequence[str] | None
) -> list[TopicPartition]:
    """All partitions, ordered by hash, then by topic in the order of `topics`, then by number."""
    if len({value for value, _ in hashed}) == len(hashed):
        return [partition for _, partition in sorted(hashed)]
    order = topics_of_all(sorted(given.subscribers, key=lambda m: m.consumer_id)) if topics is None else topics
    rank = {topic: number for number, topic in enumerate(order)}
    return [p for _, p in sorted(hashed, key=lambda one: (one[0], rank[one[1].topic], one[1].partition))]


def _hashed(given: AssignorInput, readers: Iterable[str], before: str, after: str) -> list[tuple[int, TopicPartition]]:
    """All partitions of these topics, each with the hash of its name before it."""
    found: list[tuple[int, TopicPartition]] = []
    for topic in readers:
        start = java_hash(f"{before}{topic}{after[0]}")
        found += [(java_hash(f"{n}{after[1:]}", start), TopicPartition(topic, n)) for n in given.partitions[topic]]
    return found
