"""Gives the few partitions that the levels leave, one by one, each to a consumer that has room for it.

The answer is stable without the scheme of `sticky`: in every tree on the way to a target, earlier partitions are given
in the same way, and so the rooms are the same. An owner with room keeps its partition. An owner without room is passed
over, whether it still owns the partition or has released it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace


def best_fit(
    left: Iterable[tuple[int, int, int | None]],
    readers: Sequence[Sequence[int]],
    consumers: Sequence[str],
    rooms: dict[str, int],
    loads: list[int],
) -> list[int | None]:
    """Return each partition's thread: its owner if the owner has room, else a thread of the consumer with the most
    room. None: nobody has room.

    `left` holds (weight, part, owner) of each partition, the heaviest first. `readers` holds the threads of each part,
    `consumers` and `loads` the consumer and the load of each thread, `rooms` the room of each consumer that reads.
    `rooms` and `loads` are updated.
    """
    threads: dict[int, dict[str, list[int]]] = {}  # part -> consumer -> its threads
    heaps: dict[int, list[tuple[int, str]]] = {}  # part -> (-room when it was last read, consumer)
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
    """Return the consumer with the most room. Rooms only shrink, so an outdated entry is too high in the heap, and is
    corrected when it comes to the top."""
    while True:
        known, consumer = heap[0]
        if -known == rooms[consumer]:
            return consumer
        heapreplace(heap, (-rooms[consumer], consumer))
