"""How the old high-level consumer deals partitions out, round robin. Versions differ in the partitions' order alone.

Partitions stand in the order of a signed 32-bit Java hash of their names. Names with equal hashes stood in the order of
a Scala map: from 0.11 on the order in which the first member lists the topics, which is kept here; members of 0.8.2
disagree among themselves there and can never settle (topics `Aa` and `BB`, for instance).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from zkcoord.core.assignors.contract import AssignorInput, threads_by_topic
from zkcoord.core.assignors.legacy.range import utf16_units
from zkcoord.core.model import Subscriber, TopicPartition


def deal(given: AssignorInput, before: str, after: str) -> dict[TopicPartition, str]:
    """Deal partitions, in the order of the hashes of `<before><topic><after…>`, to threads in string order.

    `before` is what stands before the topic in a partition's name; `after` stands between topic and number and, from
    its second character on, behind the number: "[" and ",]" make `[clicks,0]`. A thread that does not read a
    partition's topic loses its turn. Who owns what now changes nothing.
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
    for partition in _in_order(given, readers, before, after):
        places = turns[partition.topic]
        index = bisect_left(places, turn)
        turn = places[index if index < len(places) else 0] + 1
        answer[partition] = threads[turn - 1]
    return answer


def _in_order(given: AssignorInput, readers: Iterable[str], before: str, after: str) -> list[TopicPartition]:
    """All partitions of these topics by the hash of their names."""
    keyed: list[tuple[int, int, TopicPartition]] = []
    for rank, topic in enumerate(_as_listed(given.subscribers, readers)):
        start = java_hash(f"{before}{topic}{after[0]}")
        ids = given.partitions[topic]
        keyed += [(java_hash(f"{n}{after[1:]}", start), rank, TopicPartition(topic, n)) for n in ids]
    return [partition for _, _, partition in sorted(keyed)]


def _as_listed(subscribers: Iterable[Subscriber], topics: Iterable[str]) -> list[str]:
    """The topics in the order in which the members, by consumer id, list them first."""
    wanted = set(topics)
    listed = (topic for member in sorted(subscribers, key=lambda m: m.consumer_id) for topic in member.threads)
    return list(dict.fromkeys(topic for topic in listed if topic in wanted))


def java_hash(text: str, start: int = 0) -> int:
    """Java's `String.hashCode`, signed; `start` is the hash of what stands before the text.

    >>> java_hash("[events,0]"), java_hash("events-10"), java_hash("10", java_hash("events-"))
    (-670581339, 32279379, 32279379)
    """
    value = start
    if text.isascii():
        for character in text.encode("ascii"):
            value = value * 31 + character
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = value * 31 + (high << 8 | low)
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000
