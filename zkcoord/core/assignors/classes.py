"""Threads grouped by what they may read, and the canonical order of partitions. Both sticky paths stand on these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, cycle, groupby, repeat

from zkcoord.core.model import Subscriber, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadClass:
    """Threads that may read exactly the same topics: interchangeable, so they share evenly.

    `topics` in string order, only such that have partitions, never empty; `threads` by number, then consumer id.
    """

    topics: tuple[str, ...]
    threads: list[str]


def classes_of(subscribers: tuple[Subscriber, ...], partitions: Mapping[str, tuple[int, ...]]) -> list[ThreadClass]:
    """The classes of a group, in order of their topics; threads that may read nothing that exists are in none."""
    topics = sorted(topic for topic, ids in partitions.items() if ids)
    seen: dict[tuple[tuple[str, int], ...], list[list[str]]] = {}  # by thread number, the list that takes the thread
    streams: dict[tuple[int, tuple[str, ...]], list[str]] = {}  # (number, topics) -> thread ids by consumer
    members = sorted(subscribers, key=lambda member: member.consumer_id)
    for threads, alike in groupby(members, lambda member: member.threads):  # comparing is cheaper than a signature
        signature = tuple(threads.items())
        if signature not in seen:
            seen[signature] = _targets(threads, topics, streams)
        ids = [member.consumer_id for member in alike]
        for number, target in enumerate(seen[signature]):
            target += [f"{consumer}-{number}" for consumer in ids]  # thread_id(), inline: a call each costs a tenth
    found: dict[tuple[str, ...], list[str]] = {}
    for (_, readable), threads in sorted(streams.items()):
        found.setdefault(readable, []).extend(threads)
    return [ThreadClass(topics=readable, threads=threads) for readable, threads in sorted(found.items())]


def _targets(
    threads: Mapping[str, int], topics: list[str], streams: dict[tuple[int, tuple[str, ...]], list[str]]
) -> list[list[str]]:
    """The lists in `streams` that take thread 0, 1, ... of a member with these counts."""
    wanted = [(topic, threads[topic]) for topic in topics if threads.get(topic, 0) > 0]
    count = max((streams_wanted for _, streams_wanted in wanted), default=0)
    readable = (tuple(topic for topic, most in wanted if most > number) for number in range(count))
    return [streams.setdefault((number, names), []) for number, names in enumerate(readable)]


def canonical(topics: Iterable[str], partitions: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    """All partitions of `topics` in canonical order (by number, then topic), as plain tuples: they cost a third."""
    return list(canonical_pairs(topics, partitions))


def canonical_pairs(topics: Iterable[str], partitions: Mapping[str, tuple[int, ...]]) -> Iterable[tuple[str, int]]:
    """The same, one by one: whoever makes something else of each keeps no tuple alive."""
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
    """`owned` without partitions that the classes do not read and without threads that are in none of them."""
    threads = {thread for group in classes for thread in group.threads}
    numbers = {topic: set(partitions[topic]) for group in classes for topic in group.topics}
    return {
        pair: thread
        for pair, thread in owned.items()
        if thread in threads and pair.partition in numbers.get(pair.topic, ())
    }
