"""The input of every assignor, and the rules for its answer. An assignor is a pure function, and only assignors decide
who is given which partitions.

`check_assignment` checks every answer before it is used, also the answers of the project's own assignors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from zkcoord.core.assignors.sticky.classes import alike
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorInput:
    """A group as an assignor sees it.

    `subscribers` come in any order, each consumer id once. `partitions` maps a topic to its partition ids, ascending;
    it may hold topics that nobody subscribes to. `owned` maps a partition to the thread that holds it now. Its threads
    belong to living members, but the member may have lost interest in the topic, or the partition may be gone: then the
    partition counts as free. `weights` maps a partition to its weight; a missing one weighs 1. `racks` maps a partition
    to the racks in which it is read well: those of its replicas, or the one that the group's record names. `owned`,
    `weights` and `racks` may name partitions that do not exist.
    """

    subscribers: tuple[Subscriber, ...]
    partitions: Mapping[str, tuple[int, ...]]
    owned: Mapping[TopicPartition, str]
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


Assignor = Callable[[AssignorInput], dict[TopicPartition, str]]
"""Maps every subscribed partition, once, to a thread of a subscriber. The order of the items has no meaning.

A partition may be left out only if no subscriber has room for it. A subscriber has room if its `capacity`, less the
weights of its partitions, is at least the partition's weight.
"""


class AssignmentError(ValueError):
    """An assignor's answer breaks the contract. The answer is not used, and the group stays as it is."""


def ask(assignor: Assignor, given: AssignorInput) -> dict[TopicPartition, str]:
    """Return the assignor's checked answer. Raises AssignmentError if the answer breaks the contract or the assignor
    raises."""
    try:
        answer = assignor(given)
    except Exception as error:  # a user's assignor may raise anything, and must harm only its own group
        raise AssignmentError(f"it raised {type(error).__name__}: {error}") from error
    if not isinstance(answer, Mapping):
        raise AssignmentError(f"it answered {type(answer).__name__}, not a mapping from partition to thread")
    try:
        check_assignment(given, answer)
        if set(map(type, answer)) <= {TopicPartition}:
            return dict(answer)
        return {TopicPartition(topic, number): thread for (topic, number), thread in answer.items()}
    except (TypeError, ValueError) as error:
        if isinstance(error, AssignmentError):
            raise
        raise AssignmentError(f"its answer is no mapping from (topic, number) to thread: {error}") from error


def check_assignment(given: AssignorInput, answer: Mapping[TopicPartition, str]) -> None:
    """Raise AssignmentError unless `answer` maps every subscribed partition, once, to a subscribed thread.

    A partition may be left out only if no subscriber has room for it.
    """
    readers = threads_by_topic(given.subscribers, given.partitions)
    found = 0
    left: list[TopicPartition] = []
    for topic, ids in given.partitions.items():
        allowed = readers.get(topic)
        if allowed is None:
            continue
        holders = list(map(answer.get, zip(repeat(topic), ids, strict=False)))  # type: ignore[arg-type]
        if not allowed.issuperset(holders):
            _check_holders(topic, ids, holders, allowed)
            left += [TopicPartition(topic, n) for n, holder in zip(ids, holders, strict=True) if holder is None]
        found += len(ids)
    if found != len(answer) + len(left):
        raise AssignmentError(_first_extra(given, readers, answer))
    if left:
        _check_no_room(given, answer, left)


def threads_by_topic(
    subscribers: Iterable[Subscriber], partitions: Mapping[str, tuple[int, ...]]
) -> dict[str, frozenset[str]]:
    """Return topic -> the threads that may read it, for each topic in `partitions` that somebody subscribes to."""
    groups = alike(subscribers)
    of_topic: dict[str, list[tuple[int, int]]] = {}  # topic -> (index of the group, number of threads)
    for place, (threads, _) in enumerate(groups):
        for topic, count in threads.items():
            if count > 0 and topic in partitions:
                of_topic.setdefault(topic, []).append((place, count))
    made: dict[tuple[tuple[int, int], ...], frozenset[str]] = {}  # topics with equal counts share one set
    readers: dict[str, frozenset[str]] = {}
    for topic in filter(of_topic.__contains__, partitions):
        signature = tuple(of_topic[topic])
        if signature not in made:
            made[signature] = frozenset(
                f"{consumer}-{number}"  # thread_id(), inline
                for place, count in signature
                for number in range(count)
                for consumer in groups[place][1]
            )
        readers[topic] = made[signature]
    return readers


def unassigned(given: AssignorInput, answer: Mapping[TopicPartition, str]) -> list[TopicPartition]:
    """Return the subscribed partitions that an answer leaves out, in order."""
    topics = {topic for threads, _ in alike(given.subscribers) for topic, count in threads.items() if count}
    wanted = sum(len(ids) for topic, ids in given.partitions.items() if topic in topics)
    if wanted == len(answer):
        return []
    pairs = (TopicPartition(topic, n) for topic in sorted(topics) for n in given.partitions.get(topic, ()))
    return [pair for pair in pairs if pair not in answer]


def _check_holders(topic: str, ids: tuple[int, ...], holders: list[str | None], allowed: frozenset[str]) -> None:
    for partition, holder in zip(ids, holders, strict=True):
        if holder is not None and holder not in allowed:
            raise AssignmentError(
                f"{topic}-{partition} is given to {holder!r}, which is no thread of a subscriber of {topic!r}"
            )


def _check_no_room(given: AssignorInput, answer: Mapping[TopicPartition, str], left: list[TopicPartition]) -> None:
    loads: dict[str, int] = {}
    for partition, thread in answer.items():
        consumer = consumer_of(thread)
        loads[consumer] = loads.get(consumer, 0) + given.weights.get(partition, 1)
    room: dict[str, int | None] = {}  # topic -> the most room that a subscriber has; None: no limit
    for topic in {partition.topic for partition in left}:
        members = [member for member in given.subscribers if member.threads.get(topic, 0)]
        limits = [m.capacity - loads.get(m.consumer_id, 0) for m in members if m.capacity is not None]
        room[topic] = max(limits) if len(limits) == len(members) else None
    for partition in left:
        most = room[partition.topic]
        if most is None or most >= given.weights.get(partition, 1):
            raise AssignmentError(f"{partition} has subscribers with room for it and no thread")


def _first_extra(
    given: AssignorInput, readers: Mapping[str, frozenset[str]], answer: Mapping[TopicPartition, str]
) -> str:
    wanted = {(topic, partition) for topic in readers for partition in given.partitions[topic]}
    extra = min((key for key in answer if key not in wanted), default=None)
    if extra is None:
        return "a partition is given to None"
    return f"{extra[0]}-{extra[1]} is assigned, but it does not exist or nobody subscribed it"
