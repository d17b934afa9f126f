"""Gives what an assignor gave to somebody who cannot have it to somebody who can: pure, and the same every time.

An assignor knows threads and topics, and nothing of single partitions that must not go to a single consumer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from zkcoord.core.assignors import AssignorInput
from zkcoord.core.model import TopicPartition, consumer_of

Blocked = Callable[[TopicPartition, str], bool]
"""True when a consumer must not be given a partition."""


def divert(given: AssignorInput, answer: Mapping[TopicPartition, str], blocked: Blocked) -> dict[TopicPartition, str]:
    """The answer with every blocked partition at its present owner if that may have it, else at the thread with the
    least whose consumer has room; one that nobody may have, or has room for, stays where it is."""
    diverted = dict(answer)
    wrong = sorted(p for p, thread in answer.items() if blocked(p, consumer_of(thread)))
    load = Counter(answer.values()) if wrong else Counter[str]()
    room = _room(given, answer) if wrong else {}
    for partition in wrong:
        weight = given.weights.get(partition, 1)
        able = [s for s in given.subscribers if not blocked(partition, s.consumer_id)]
        threads = [thread for s in able for thread in s.thread_ids(partition.topic)]
        owner = given.owned.get(partition)
        if owner not in threads:
            threads = [t for t in threads if room.get(consumer_of(t), weight) >= weight]
        if not threads:
            continue
        chosen = owner if owner in threads else min(threads, key=lambda thread: (load[thread], thread))
        for thread, change in ((diverted[partition], -1), (chosen, 1)):
            load[thread] += change
            if consumer_of(thread) in room:
                room[consumer_of(thread)] -= change * weight
        diverted[partition] = chosen
    return diverted


def _room(given: AssignorInput, answer: Mapping[TopicPartition, str]) -> dict[str, int]:
    """What those with a capacity can take beside what they are given."""
    room = {s.consumer_id: s.capacity for s in given.subscribers if s.capacity is not None}
    for partition, thread in answer.items() if room else ():
        if consumer_of(thread) in room:
            room[consumer_of(thread)] -= given.weights.get(partition, 1)
    return room
