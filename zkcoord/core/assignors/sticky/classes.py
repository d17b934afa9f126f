"""Groups threads by the topics that they may read, and defines the canonical order of partitions, for all paths of
`sticky`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, cycle, groupby, repeat
from operator import attrgetter

from zkcoord.core.model import Subscriber, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadClass:
    """Threads that may read exactly the same topics. They are interchangeable, so they share evenly.

    `topics` is never empty, in string order, and holds only topics that have partitions. `threads` are ordered by
    number, then consumer id.
    """

    topics: tuple[str, ...]
    threads: list[str]


def alike(subscribers: Iterable[Subscriber]) -> list[tuple[Mapping[str, int], list[str]]]:
    """Return (threads by topic, the consumers that subscribe to exactly these) for each different subscription, in the
    given order."""
    found: dict[tuple[str | int, ...], tuple[Mapping[str, int], list[str]]] = {}
    for threads, members in groupby(subscribers, attrgetter("threads")):  # comparing is cheaper than a signature
        _, consumers = found.setdefault((*threads, *threads.values()), (threads, []))
        consumers += map(attrgetter("consumer_id"), members)
    return list(found.values())


def classes_of(subscribers: Iterable[Subscriber], partitions: Mapping[str, tuple[int, ...]]) -> list[ThreadClass]:
    """Return the classes of a group, ordered by their topics. Threads that may read no existing partition belong to
    none."""
    streams: dict[tuple[int, tuple[str, ...]], list[str]] = {}  # (number, topics) -> consumers
    for threads, consumers in alike(subscribers):
        wanted = sorted((topic, count) for topic, count in threads.items() if count > 0 and partitions.get(topic))
        for number in range(max((count for _, count in wanted), default=0)):
            topics = tuple([topic for topic, count in wanted if count > number])
            streams.setdefault((number, topics), []).extend(consumers)
    found: dict[tuple[str, ...], list[str]] = {}
    for (number, topics), consumers in sorted(streams.items()):
        consumers.sort()
        found.setdefault(topics, []).extend([f"{consumer}-{number}" for consumer in consumers])  # thread_id(), inline
    return [ThreadClass(topics=topics, threads=threads) for topics, threads in sorted(found.items())]


def canonical(topics: Iterable[str], partitions: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    """Return all partitions of `topics` in canonical order (by number, then topic), as plain tuples, which cost a third
    of TopicPartition."""
    return list(canonical_pairs(topics, partitions))


def canonical_pairs(topics: Iterable[str], partitions: Mapping[str, tuple[int, ...]]) -> Iterable[tuple[str, int]]:
    """Yield the same partitions one by one. Callers that convert each of them keep no tuple alive."""
    names = sorted(topics)
    numbers = partitions[names[0]] if names else ()
    if all(partitions[name] == numbers for name in names):
        return zip(cycle(names), chain.from_iterable(map(repeat, numbers, repeat(len(names)))), strict=False)
    by_number: dict[int, list[tuple[str, int]]] = {}
    for name in names:
        for number in partitions[name]:
            by_number.setdefault(number, []).append((name, number))
    return (pair for number in sorted(by_number) for pair in by_number[number])


def canonical_key(pair: tuple[str, int]) -> tuple[int, str]:
    """Sort key of the canonical order."""
    return pair[1], pair[0]


def owned_among(
    owned: Mapping[TopicPartition, str], classes: Iterable[ThreadClass], partitions: Mapping[str, tuple[int, ...]]
) -> dict[TopicPartition, str]:
    """Return `owned` without partitions that the classes do not read, and without threads that belong to no class."""
    threads = {thread for group in classes for thread in group.threads}
    numbers = {topic: set(partitions[topic]) for topic in {topic for group in classes for topic in group.topics}}
    return {
        pair: thread
        for pair, thread in owned.items()
        if thread in threads and pair.partition in numbers.get(pair.topic, ())
    }
