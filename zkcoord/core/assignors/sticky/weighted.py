"""Sticky shares for a group with weights, capacities or racks: level by level, the heaviest partitions first.

A *level* is all partitions of one weight that the same threads may read. At each level every thread has a load: the
weight that it was given at earlier levels. By induction over the levels, the loads are the same in every tree on the
way to a target. So everything that follows from loads alone is stable, and the rest of a level follows the scheme of
`sticky`:

1. The loads fix a water line. The line fixes, for each thread, how many partitions fit under it (`base`), and whether
   one more may rise above it. When the whole level fits, `base` is the most that a thread keeps of its partitions.
   Else each thread takes `base`, and the rest rise above: first at threads that own more, then at the emptiest.
2. Threads keep the partitions that they own, up to that number, in canonical order. The rest is matched with the open
   places, the lowest loads first, both in canonical order: without one matched pair, the other pairs stay the same.

The water line is the level at which the partitions of this level would stand when poured over the loads. When all
threads read the same topics, the line is raised by one partition for each thread if lighter ones can even that out:
then more partitions can stay. A thread is never above the line by as much as its last partition. With capacities the
line rises until everything fits; partitions for which no consumer has room are left out.

With racks the number for each thread follows from loads alone, and owners do not count. Then the threads are filled so
that as many partitions as possible are in one of their own racks, owned ones first (`racks`). So racks never cost
evenness, and count more than staying, as in Kafka's own assignors (KIP-881).

Each level costs time, and causes moves of its own when the number of threads changes. So without capacities weights are
rounded down to their BITS_MAX leading bits (up to 15 they are exact, above by less than an eighth), and to fewer bits
if levels times threads would exceed WORK_MAX. Rounding makes shares uneven by a few per cent, since most of it cancels
out. With capacities weights are exact unless that exceeds WORK_MAX. Then they are rounded up, and partitions that find
no room because of it, always the canonically last of a level, are given one by one by their own weight (`best_fit`).

Cost: some ten passes over the partitions, and for each level ten passes over its threads; with different subscriptions,
for each level and set of topics. `benchmarks/assignors.py` measures it: 10,000 members with 100,000 partitions take 0.1
s; with 20 different subscriptions and four weights they take 0.17 s.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice, repeat
from operator import is_not
from typing import cast

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.sticky.best_fit import best_fit
from zkcoord.core.assignors.sticky.classes import ThreadClass, canonical_pairs, owned_among
from zkcoord.core.assignors.sticky.racks import Racks, fill_near, laid_along
from zkcoord.core.assignors.sticky.water_filling import emptiest, risen, rounded, rounded_up, spread, under, water_line
from zkcoord.core.model import TopicPartition, as_partitions, consumer_of, number_of

BITS_MAX = 4
"""Number of leading bits of a weight that count. With all bits of weights from 1 to 1,000 the join of an eleventh
member moved 229 of 1,000 partitions, with 4 bits 121."""

WORK_MAX = 200_000
"""The largest number of levels times threads. This much work takes about 60 ms."""

Pair = tuple[str, int]
NONE: Racks = frozenset()


def assign_weighted(
    classes: list[ThreadClass], given: AssignorInput, near: Mapping[Racks, Racks], work_max: int = WORK_MAX
) -> dict[TopicPartition, str]:
    """Even loads first, then racks, then little movement. A partition for which nobody has room is left out.

    `near` maps racks to those of them that count (`racks_that_count`). It is empty when none do. `work_max` is the
    largest number of levels times threads.
    """
    return _Levels(classes, given, near, work_max).assign()


@dataclass(frozen=True, slots=True)
class _Part:
    """The topics that the same threads read, with their partitions, in canonical order.

    Threads and partitions are indices into this part, without a tuple for each. `here` holds each thread's index among
    all threads. `owners`, `racks` and `taken` hold, for each partition, its owner, its racks that have a member, and
    the thread that it is given to.
    """

    topics: list[str]
    here: list[int]
    names: list[str]
    owners: list[int | None]
    racks: list[Racks]
    taken: list[int | None]


class _Levels:
    """Invariant: `load`, `room` and every part's `taken` follow from the levels that are done.

    `met` is the number of owned partitions that are in the parts. `_rounded` is True if weights are rounded up.
    """

    def __init__(
        self, classes: list[ThreadClass], given: AssignorInput, near: Mapping[Racks, Racks], work_max: int
    ) -> None:
        self._given, self._classes, self._work_max = given, classes, work_max
        self._threads, self._consumers = _in_order(classes)
        self._load = [0] * len(self._threads)
        self._room = {m.consumer_id: m.capacity for m in given.subscribers if m.capacity is not None}
        self._near = near
        rack_of = {m.consumer_id: m.rack for m in given.subscribers} if self._near else {}
        self._racks = [rack_of[consumer] for consumer in self._consumers] if self._near else []
        self._met = 0

    def assign(self) -> dict[TopicPartition, str]:
        """Give all levels, one after the other, and return the assignment."""
        readers: dict[str, list[int]] = defaultdict(list)  # topic -> classes
        for n, group in enumerate(self._classes):
            for topic in group.topics:
                readers[topic].append(n)
        alike: dict[tuple[int, ...], list[str]] = defaultdict(list)  # classes that read -> topics
        for topic in sorted(readers):
            alike[tuple(readers[topic])].append(topic)
        index = {thread: n for n, thread in enumerate(self._threads)}
        edges = sum(len(self._classes[n].threads) for numbers in alike for n in numbers)
        table = self._table(len(self._threads) * len(alike), edges)
        self._rounded = bool(self._room) and any(weight != counts for weight, counts in table.items())
        levels: list[tuple[int, int, tuple[int, ...], Sequence[int]]] = []  # -weight, classes, partitions' places
        parts = {}
        for numbers, topics in alike.items():
            here = sorted(chain.from_iterable(map(index.__getitem__, self._classes[n].threads) for n in numbers))
            parts[numbers] = self._part(topics, here)
            by_weight = self._by_weight(parts[numbers], table)
            levels += [(-weight, len(numbers), numbers, at) for weight, at in by_weight.items()]
        slack = len(self._threads) if len(self._classes) == 1 else 0
        rest = sum(-negative * len(at) for negative, _, _, at in levels)
        for negative, _, numbers, at in sorted(levels, key=lambda level: level[:3]):
            self._level(parts[numbers], at, -negative, min(rest, -negative * (len(at) + slack)))
            rest += negative * len(at)
        if self._rounded:
            self._give_left(list(parts.values()))
        return self._answer(list(parts.values()))

    def _part(self, topics: list[str], here: list[int]) -> _Part:
        """Describe these topics before any level is done."""
        names = list(map(self._threads.__getitem__, here))
        count = sum(len(self._given.partitions[topic]) for topic in topics)
        owners: list[int | None] = [None] * count
        owned = cast(Mapping[Pair, str], self._given.owned)
        if owned:
            threads = list(map(owned.get, canonical_pairs(topics, self._given.partitions)))
            self._met += count - threads.count(None)
            place: dict[str | None, int] = dict(zip(names, range(len(names)), strict=True))
            owners = list(map(place.get, threads))
        racks: list[Racks] = []
        if self._near:
            near = cast(Mapping[Racks | None, Racks], self._near)
            of_pair = cast(Mapping[Pair, Racks], self._given.racks)
            pairs = canonical_pairs(topics, self._given.partitions)
            racks = list(map(near.get, map(of_pair.get, pairs), repeat(NONE)))
        return _Part(topics, here, names, owners, racks, [None] * count)

    def _table(self, work: int, work_of_room: int) -> dict[int, int]:
        """Return weight -> the weight that counts. `work` and `work_of_room` are the work of one level without and with
        capacities."""
        numbers = set(self._given.weights.values()) | {1}
        cut, bits = rounded, BITS_MAX
        if self._room:
            if len(numbers) * work_of_room <= self._work_max:
                return {weight: weight for weight in numbers}
            cut, work = rounded_up, work_of_room
        while bits > 1 and len({cut(w, bits) for w in numbers}) * work > self._work_max:
            bits -= 1
        return {weight: cut(weight, bits) for weight in numbers}

    def _by_weight(self, part: _Part, table: Mapping[int, int]) -> Mapping[int, Sequence[int]]:
        """Return weight that counts -> the partitions' indices. A partition without a weight weighs 1."""
        if len(table) == 1:
            return {1: range(len(part.taken))}
        found: dict[int, list[int]] = defaultdict(list)
        for place, weight in enumerate(map(table.__getitem__, self._weights(part))):
            found[weight].append(place)
        return found

    def _weights(self, part: _Part) -> Iterator[int]:
        """Return each partition's weight."""
        weights = cast(Mapping[Pair, int], self._given.weights)
        return map(weights.get, canonical_pairs(part.topics, self._given.partitions), repeat(1))

    def _give_left(self, parts: list[_Part]) -> None:
        """Give partitions that found no room by rounded weights to consumers that have room for their own weight."""
        rooms = {m.consumer_id: m.capacity for m in self._given.subscribers if m.capacity is not None}
        left = []
        for number, part in enumerate(parts):
            consumers = [self._consumers[index] for index in part.here]
            for place, (n, weight) in enumerate(zip(part.taken, self._weights(part), strict=True)):
                if n is None:
                    left.append((-weight, number, place))
                elif consumers[n] in rooms:
                    rooms[consumers[n]] -= weight
        left.sort()
        asked = []
        for negative, number, place in left:
            n = parts[number].owners[place]
            asked.append((-negative, number, None if n is None else parts[number].here[n]))
        takers = best_fit(asked, [part.here for part in parts], self._consumers, rooms, self._load)
        for (_, number, place), thread in zip(left, takers, strict=True):
            if thread is not None:
                parts[number].taken[place] = bisect_left(parts[number].here, thread)

    def _answer(self, parts: list[_Part]) -> dict[TopicPartition, str]:
        """Return the owned partitions with the moves. Most keys stay the same objects, which costs a fraction of new
        ones."""
        owned, partitions = self._given.owned, self._given.partitions
        answer = dict(owned) if len(owned) == self._met else owned_among(owned, self._classes, partitions)
        for part in parts:
            changed = list(map(is_not, part.taken, part.owners))
            if None in part.taken:  # no room
                out = [n is None for n in part.taken]
                for pair in as_partitions(compress(canonical_pairs(part.topics, partitions), out)):
                    answer.pop(pair, None)
                changed = [flag and n is not None for flag, n in zip(changed, part.taken, strict=True)]
            pairs = as_partitions(compress(canonical_pairs(part.topics, partitions), changed))
            places = cast(Iterator[int], compress(part.taken, changed))
            answer.update(zip(pairs, map(part.names.__getitem__, places), strict=True))
        return answer

    def _level(self, part: _Part, at: Sequence[int], weight: int, below: int) -> None:
        """Give the partitions at these indices, which have one weight, to the readers."""
        loads = list(map(self._load.__getitem__, part.here))
        limits = self._limits(part.here, loads, weight, len(at))
        count, numbers = len(at), Counter(loads)
        line = water_line(numbers, below)
        if limits is not None:
            count = min(count, sum(limits))
            line = risen(line, count, weight, loads, limits)
            if self._rounded:  # the partitions that are left must not depend on owners then
                at = at[:count]
        base, more = under(line, weight, loads, numbers, limits)
        over = count - sum(base)
        owners = part.owners if len(at) == len(part.owners) else list(map(part.owners.__getitem__, at))
        racks = list(map(part.racks.__getitem__, at)) if self._near else []
        if len(set(racks)) > 1:
            spare = over <= 0
            shares = emptiest(count, base, loads, weight) if spare else spread(over, base, more, loads, weight)
            taken = fill_near(racks, owners, [self._racks[index] for index in part.here], shares)
        elif over > 0:
            held = Counter(owners).items()
            first = sorted(n for n, number in held if n is not None and number > base[n])
            shares = spread(over, base, more, loads, weight, first=first)
            taken, opens = _keep(owners, shares)
            _fill(taken, opens)
        else:
            taken, opens = _keep(owners, base)
            kept = [most - free for most, free in zip(base, opens, strict=True)]
            heights = [load + number * weight for load, number in zip(loads, kept, strict=True)]
            rows = emptiest(taken.count(None), opens, heights, weight)
            shares = [number + row for number, row in zip(kept, rows, strict=True)]
            _fill(taken, rows)
        if len(at) == len(part.taken):
            part.taken[:] = taken
        else:
            for place, thread in zip(at, taken, strict=True):
                part.taken[place] = thread
        self._give(part.here, loads, shares, weight)

    def _give(self, here: list[int], loads: list[int], shares: list[int], weight: int) -> None:
        for n in compress(range(len(shares)), shares):
            number = shares[n]
            self._load[here[n]] = loads[n] + number * weight
            if self._room and self._consumers[here[n]] in self._room:
                self._room[self._consumers[here[n]]] -= number * weight

    def _limits(self, here: list[int], loads: list[int], weight: int, most: int) -> list[int] | None:
        """Return how many partitions each thread may take at this level by its consumer's capacity. None: there are no
        capacities."""
        if not self._room:
            return None
        limits = [most] * len(here)
        of_consumer: dict[str, list[int]] = defaultdict(list)
        for n, index in enumerate(here):
            if self._consumers[index] in self._room:
                of_consumer[self._consumers[index]].append(n)
        for consumer, places in of_consumer.items():
            number = min(max(self._room[consumer], 0) // weight, most)
            if len(places) == 1:
                limits[places[0]] = number
                continue
            rows = emptiest(number, [most] * len(places), [loads[n] for n in places], weight)
            for n, share in zip(places, rows, strict=True):
                limits[n] = share
        return limits


def _in_order(classes: list[ThreadClass]) -> tuple[list[str], list[str]]:
    """Return (all threads by number, then consumer; the consumer of each)."""
    if len(classes) == 1:
        threads = classes[0].threads
        return threads, list(map(consumer_of, threads))
    each = [(number_of(thread), consumer_of(thread), thread) for group in classes for thread in group.threads]
    each.sort()
    return [thread for _, _, thread in each], [consumer for _, consumer, _ in each]


def _keep(owners: list[int | None], most: list[int]) -> tuple[list[int | None], list[int]]:
    """Return (owners that stay, open places). A thread keeps the canonically first of its partitions, up to `most`."""
    left = list(most)
    if owners.count(None) == len(owners):
        return list(owners), left
    taken: list[int | None] = []
    for n in owners:
        if n is not None and left[n]:
            left[n] -= 1
            taken.append(n)
        else:
            taken.append(None)
    return taken, left


def _fill(taken: list[int | None], opens: list[int]) -> None:
    """Give the free partitions to the threads in order, to each as many as it has open places."""
    row = chain(laid_along(range(len(opens)), opens), repeat(None))
    if taken.count(None) == len(taken):
        taken[:] = islice(row, len(taken))
    else:
        taken[:] = [next(row) if n is None else n for n in taken]
