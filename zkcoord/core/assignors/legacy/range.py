"""The range assignor of the old high-level consumer (Kafka 0.8 to 1.1), bit for bit: old members compute it too.

Each topic is shared by itself. Partitions are in numeric order, and threads in string order of their ids (Java compares
UTF-16 code units, so `c-10` comes before `c-2`). The first `partitions mod threads` threads get one more than the
others.
"""

from __future__ import annotations

from itertools import chain, repeat

from zkcoord.core.assignors.contract import AssignorInput, threads_by_topic
from zkcoord.core.model import TopicPartition


def assign_range(given: AssignorInput) -> dict[TopicPartition, str]:
    """Share each topic by itself in contiguous ranges. Present owners change nothing."""
    readers = threads_by_topic(given.subscribers, given.partitions)
    ordered: dict[frozenset[str], list[str]] = {}  # topics with equal subscribers share one sorted list
    answer: dict[TopicPartition, str] = {}
    for topic, threads in readers.items():
        if threads not in ordered:
            ordered[threads] = sorted(threads, key=utf16_units)
        ids = given.partitions[topic]
        answer.update(zip(map(TopicPartition, repeat(topic), ids), _holders(ordered[threads], len(ids)), strict=True))
    return answer


def utf16_units(text: str) -> bytes:
    """A sort key that compares like Java's `String.compareTo`.

    >>> sorted(["\\uff5e", "\\U0001f600", "a"], key=utf16_units) == ["a", "\\U0001f600", "\\uff5e"]
    True
    """
    return text.encode("utf-16-be", "surrogatepass")


def _holders(threads: list[str], partitions: int) -> chain[str]:
    """Yield one thread for each partition, in order: `quotient` partitions for each thread, and one more for the first
    `remainder` threads."""
    quotient, remainder = divmod(partitions, len(threads))
    return chain.from_iterable(
        repeat(thread, quotient + (1 if index < remainder else 0)) for index, thread in enumerate(threads)
    )
