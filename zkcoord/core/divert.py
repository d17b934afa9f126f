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
    least; one that nobody may have stays where it is."""
    diverted = dict(answer)
    wrong = sorted(p for p, thread in answer.items() if blocked(p, consumer_of(thread)))
    load = Counter(answer.values()) if wrong else Counter[str]()
    for partition in wrong:
        able = [s for s in given.subscribers if not blocked(partition, s.consumer_id)]
        threads = [thread for s in able for thread in s.thread_ids(partition.topic)]
        if not threads:
            continue
        owner = given.owned.get(partition)
        chosen = owner if owner in threads else min(threads, key=lambda thread: (load[thread], thread))
        load[diverted[partition]] -= 1
        load[chosen] += 1
        diverted[partition] = chosen
    return diverted
