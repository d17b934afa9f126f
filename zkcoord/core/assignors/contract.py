"""What every assignor is given and what it must answer. An assignor is a pure function; nothing else decides shares.

The answer is checked by `check_assignment` before anybody acts on it, the project's own assignors included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat

from zkcoord.core.model import Subscriber, TopicPartition, thread_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorInput:
    """A group as an assignor sees it.

    `subscribers` in any order, each consumer id once. `partitions`: topic to partition ids, ascending; a topic that
    nobody subscribed may be listed. `owned`: partition to the thread that holds it now; only threads of living
    members, but the member may have lost its interest and the partition may be gone (both count as free).
    `preferred`: a free partition to the thread that an outstanding stop names next; a hint that an assignor may use.
    """

    subscribers: tuple[Subscriber, ...]
    partitions: Mapping[str, tuple[int, ...]]
    owned: Mapping[TopicPartition, str]
    preferred: Mapping[TopicPartition, str]


Assignor = Callable[[AssignorInput], dict[TopicPartition, str]]
"""Every partition that somebody subscribed, once, to a thread of a subscriber. The order of the items means nothing."""


class AssignmentError(ValueError):
    """An assignor's answer breaks the contract: nothing may be done with it, the group stays as it is."""


def check_assignment(given: AssignorInput, answer: Mapping[TopicPartition, str]) -> None:
    """Raise AssignmentError unless `answer` holds exactly the subscribed partitions, each with a subscribed thread."""
    readers = threads_by_topic(given.subscribers, given.partitions)
    found = 0
    for topic, ids in given.partitions.items():
        allowed = readers.get(topic)
        if allowed is None:
            continue
        holders = list(map(answer.get, zip(repeat(topic), ids, strict=False)))  # type: ignore[arg-type]
        if not allowed.issuperset(holders):
            raise AssignmentError(_first_wrong(topic, ids, holders, allowed))
        found += len(ids)
    if found != len(answer):
        raise AssignmentError(_first_extra(given, readers, answer))


def threads_by_topic(
    subscribers: Iterable[Subscriber], partitions: Mapping[str, tuple[int, ...]]
) -> dict[str, frozenset[str]]:
    """Topic to the threads that may read it, for each topic in `partitions` that somebody subscribed."""
    members = tuple(subscribers)
    made: dict[tuple[int, ...], frozenset[str]] = {}  # topics with equal counts share one set
    readers: dict[str, frozenset[str]] = {}
    for topic in partitions:
        counts = tuple([member.threads.get(topic, 0) for member in members])
        if not any(counts):
            continue
        if counts not in made:
            made[counts] = frozenset(
                thread_id(member.consumer_id, number)
                for member, count in zip(members, counts, strict=True)
                for number in range(count)
            )
        readers[topic] = made[counts]
    return readers


def _first_wrong(topic: str, ids: tuple[int, ...], holders: list[str | None], allowed: frozenset[str]) -> str:
    for partition, holder in zip(ids, holders, strict=True):
        if holder is None:
            return f"{topic}-{partition} has subscribers and no thread"
        if holder not in allowed:
            return f"{topic}-{partition} is given to {holder!r}, which is no thread of a subscriber of {topic!r}"
    return f"{topic} is assigned wrongly"  # not reached: the caller saw a holder that is not allowed


def _first_extra(
    given: AssignorInput, readers: Mapping[str, frozenset[str]], answer: Mapping[TopicPartition, str]
) -> str:
    wanted = {(topic, partition) for topic in readers for partition in given.partitions[topic]}
    extra = min(key for key in answer if key not in wanted)
    return f"{extra[0]}-{extra[1]} is assigned, but it does not exist or nobody subscribed it"
