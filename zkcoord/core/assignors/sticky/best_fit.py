"""Gives partitions one by one, each to a consumer that has room for it: the few that the levels leave.

Stable without a scheme: earlier partitions are given the same in every tree on the way to a target, and so are the
rooms. An owner with room keeps its partition; one without room is passed over, whether it still owns it or has released
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace


def give_singly(
    left: Iterable[tuple[int, int, int | None]],
    readers: Sequence[Sequence[int]],
    consumers: Sequence[str],
    rooms: dict[str, int],
    loads: list[int],
) -> list[int | None]:
    """Return each partition's thread: its owner if that has room, else one of the consumer with the most; None: no
    room.

    `left`: (weight, part, owner) of each partition, the heaviest first; `readers`: by part its threads; `consumers`,
    `loads` of each thread; `rooms` of each consumer that reads. Rooms and loads are changed to what is left.
    """
    threads: dict[int, dict[str, list[int]]] = {}  # part -> consumer -> its threads
    heaps: dict[int, list[tuple[int, str]]] = {}  # part -> (-room as it was once, consumer)
    answer: list[int | None] = []
    for weight, part, owner in left:
        if part not in threads:
            threads[part] = defaultdict(list)
            for thread in readers[part]:
                threads[part][consumers[thread]].append(thread)
            heaps[part] = [(-rooms[consumer], consumer) for consumer in threads[part]]
            heapify(heaps[part])
        taker = owner if owner is not None and rooms[consumers[owner]] >= weight else None
        if taker is None:
            consumer = _with_most_room(heaps[part], rooms)
            if rooms[consumer] >= weight:
                taker = min(threads[part][consumer], key=loads.__getitem__)
        if taker is not None:
            rooms[consumers[taker]] -= weight
            loads[taker] += weight
        answer.append(taker)
    return answer


def _with_most_room(heap: list[tuple[int, str]], rooms: Mapping[str, int]) -> str:
    """Return the consumer with the most room. Rooms only shrink: an outdated entry stands too high, and is corrected
    when it comes up."""
    while True:
        known, consumer = heap[0]
        if -known == rooms[consumer]:
            return consumer
        heapreplace(heap, (-rooms[consumer], consumer))
