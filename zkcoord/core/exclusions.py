"""Moves partitions away from members that cannot take them to members that can. Pure and deterministic.

An assignor knows threads and topics. It does not know that a single partition must not go to a certain consumer.
Thousands of partitions may have to move at once, with thousands of threads to choose from (a rack is away, and a topic
is created meanwhile). So threads that may read the same topics are in one heap, and a thread that cannot take a
partition is passed over for that partition only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from heapq import heapify, heappop, heappush, heapreplace

from zkcoord.core.assignors import AssignorInput
from zkcoord.core.assignors.contract import threads_by_topic
from zkcoord.core.model import TopicPartition, consumer_of, thread_id
from zkcoord.core.quarantine import Exclusions

HEAPS_MAX = 100
"""Number of heaps that are kept. There is one for each combination of topics, size of weight and newest refuser; as a
rule, one for all."""

_Heap = list[tuple[int, str]]  # (load, thread)


def exclude(
    given: AssignorInput,
    answer: Mapping[TopicPartition, str],
    absent: Set[str],
    exclusions: Exclusions,
    joined: Mapping[str, int],
    heaps_max: int = HEAPS_MAX,
) -> Mapping[TopicPartition, str]:
    """Return the answer without quarantined partitions, and with excluded ones moved away from their consumers.

    An excluded partition goes to its present owner if the owner may have it, else to the thread with the least load
    that has room. It stays where it is if no thread can take it.

    `absent` are consumers that are given only what they own. `joined` maps the other subscribers to their czxids.
    """
    if exclusions.quarantined:
        answer = {p: thread for p, thread in answer.items() if p not in exclusions.quarantined}
    if not (absent or exclusions.pairs or exclusions.newer):
        return answer
    consumers = {thread: consumer_of(thread) for thread in {*answer.values(), *given.owned.values()}}
    wrong = _beyond_their_own(given, answer, consumers, absent)
    for partition in {partition for partition, _ in exclusions.pairs}.union(exclusions.newer) & answer.keys():
        if exclusions.excludes(partition, consumers[answer[partition]], joined):
            wrong.add(partition)
    if not wrong:
        return answer
    changed = dict(answer)
    choice = _Choice(given, answer, consumers, wrong, exclusions, joined, heaps_max)
    for partition in sorted(wrong):
        chosen = choice.of(partition)
        if chosen is not None:
            choice.move(partition, changed[partition], chosen)
            changed[partition] = chosen
    return changed


def _beyond_their_own(
    given: AssignorInput, answer: Mapping[TopicPartition, str], consumers: Mapping[str, str], absent: Set[str]
) -> set[TopicPartition]:
    """The partitions that the answer gives to absent consumers that do not own them."""
    away = {thread for thread, consumer in consumers.items() if consumer in absent}
    if not away:
        return set()
    owned = given.owned
    others = [(p, thread) for p, thread in answer.items() if thread in away and owned.get(p) != thread]
    return {p for p, thread in others if consumers.get(owned.get(p, "")) != consumers[thread]}


class _Choice:
    """Finds a thread that can take a partition. Loads and rooms include the moves so far."""

    def __init__(
        self,
        given: AssignorInput,
        answer: Mapping[TopicPartition, str],
        consumers: Mapping[str, str],
        wrong: Set[TopicPartition],
        exclusions: Exclusions,
        joined: Mapping[str, int],
        heaps_max: int,
    ) -> None:
        self._given, self._exclusions, self._joined, self._heaps_max = given, exclusions, joined, heaps_max
        topics = {partition.topic for partition in wrong}
        self._readers = threads_by_topic(given.subscribers, {t: given.partitions[t] for t in topics})
        self._threads = {s.consumer_id: max(s.threads.values(), default=0) for s in given.subscribers}
        self._load = Counter(answer.values())
        self._room = {s.consumer_id: s.capacity for s in given.subscribers if s.capacity is not None}
        for partition, thread in answer.items() if self._room else ():
            if consumers[thread] in self._room:
                self._room[consumers[thread]] -= given.weights.get(partition, 1)
        self._lightest: dict[int, int] = {}
        # size of weight -> the lightest weight of that size among the partitions to move
        for weight in {given.weights.get(partition, 1) for partition in wrong} if self._room else ():
            size = weight.bit_length()
            self._lightest[size] = min(weight, self._lightest.get(size, weight))
        self._heaps: dict[tuple[frozenset[str], int, int], _Heap] = {}
        # (readers, size of weight, newest refuser) -> heap. Invariant: every thread that could be chosen is in it with
        # its load, or a lower one

    def of(self, partition: TopicPartition) -> str | None:
        """Return the thread for a partition. None: no thread can take it."""
        readers, owner = self._readers[partition.topic], self._given.owned.get(partition)
        if owner in readers and not self._exclusions.excludes(partition, consumer_of(owner), self._joined):
            return owner
        weight, newest = self._given.weights.get(partition, 1), self._exclusions.newer.get(partition, -1)
        size = weight.bit_length() if self._room else 0
        heap = self._heap(readers, size, newest)
        lightest = self._lightest.get(size, weight)
        passed: _Heap = []
        found = None
        while heap and found is None:
            load, thread = heap[0]
            consumer = consumer_of(thread)
            room = self._room.get(consumer, weight)
            if load < self._load[thread]:
                heapreplace(heap, (self._load[thread], thread))
            elif load > self._load[thread] or room < lightest:
                heappop(heap)  # it is in the heap with its load, too, or returns when it has room
            elif room < weight or (partition, consumer) in self._exclusions.pairs:
                passed.append(heappop(heap))
            else:
                found = thread
        for entry in passed:
            heappush(heap, entry)
        return found

    def _heap(self, readers: frozenset[str], size: int, newest: int) -> _Heap:
        """A heap of the readers that joined after `newest`."""
        key = (readers, size, newest)
        if key not in self._heaps:
            if len(self._heaps) >= self._heaps_max:
                self._heaps.clear()
            self._heaps[key] = [(self._load[t], t) for t in readers if self._joined.get(consumer_of(t), -1) > newest]
            heapify(self._heaps[key])
        return self._heaps[key]

    def move(self, partition: TopicPartition, before: str, chosen: str) -> None:
        """Give the partition to `chosen`, and note in every heap that its former thread has more room."""
        weight = self._given.weights.get(partition, 1)
        for thread, change in ((before, -1), (chosen, 1)):
            self._load[thread] += change
            if consumer_of(thread) in self._room:
                self._room[consumer_of(thread)] -= change * weight
        consumer = consumer_of(before)
        if consumer not in self._joined:
            return  # absent: it is given nothing
        threads = [thread_id(consumer, number) for number in range(self._threads[consumer])]
        for (readers, _, newest), heap in self._heaps.items():
            if self._joined[consumer] > newest:
                for thread in readers.intersection(threads):
                    heappush(heap, (self._load[thread], thread))
