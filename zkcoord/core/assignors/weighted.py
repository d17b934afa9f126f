"""Sticky shares for a group with weights, capacities or racks: level by level, the heaviest partitions first.

A *level* is all partitions of one weight that the same threads may read. At each level every thread has a load, the
weight that it was given at earlier levels, and the same in every tree on the way to a target, by induction over levels.
So all that is fixed by loads alone is stable, and the rest of a level follows the scheme of `sticky`:

1. From loads alone follow a water line, and from it for each thread what fits under it (`base`), and whether one more
   may stand out of it. When all of a level fits, `base` is the most that a thread keeps of what it owns; else each
   takes `base`, and the rest stand out: first at threads that own more, then at the emptiest.
2. Threads keep what they own, up to that, in canonical order. What is left is laid along the open places, the lowest
   loads first, both in canonical order: taking a matched pair out of two such rows matches the rest as before.

The water line is where the partitions of this level would stand, poured over the loads. When all threads read the
same, it is raised by one partition a thread if lighter ones can even that out: then more can stay. A thread is never
above the line by as much as its last partition. With capacities a line rises until all fits; what no consumer has room
for is left out.

With racks the number for each thread follows from loads alone, nobody's owning counts; then threads are filled with
partitions of their own rack, owned ones first, then with the others, owned ones first. So racks never cost evenness,
and count more than staying, as in Kafka's own assignors (KIP-881).

Each level costs time, and moves of its own when the number of threads changes. So without capacities weights are
rounded down to their BITS_MAX leading bits (up to 15 they are exact, above by less than an eighth), to fewer if levels
times threads would exceed WORK_MAX. Shares are then off by what was cut off: a few per cent, for it evens itself out.

Cost: a dozen passes over the partitions, and one over the threads for each level; with different subscriptions for each
level and topic. `benchmarks/assignors.py` measures it: at 10,000 members and 100,000 partitions 0.25 s, mixed 0.4 s.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import chain, repeat

from zkcoord.core.assignors.classes import ThreadClass, as_partitions, canonical
from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.model import TopicPartition, consumer_of

BITS_MAX = 4
"""With all bits of weights from 1 to 1,000 an eleventh member's join moved 229 of 1,000 partitions, with 4 bits 121."""

WORK_MAX = 200_000
"""Levels times threads, about 100 ms."""

Pair = tuple[str, int]


def assign_weighted(classes: list[ThreadClass], given: AssignorInput) -> dict[TopicPartition, str]:
    """Even loads first, then racks, then little movement; a partition for which nobody has room is left out."""
    return _Levels(classes, given).assign()


class _Levels:
    """Invariant: `load` and `room` are what follows from the levels that are done."""

    def __init__(self, classes: list[ThreadClass], given: AssignorInput) -> None:
        self._given = given
        self._classes = classes
        threads = [thread for group in classes for thread in group.threads]
        self._threads = sorted(threads, key=_thread_key)
        self._index = {thread: index for index, thread in enumerate(self._threads)}
        self._load = [0] * len(self._threads)
        members = {member.consumer_id: member for member in given.subscribers}
        consumers = [consumer_of(thread) for thread in self._threads]
        self._consumers = consumers
        self._room = {c: most for c, m in members.items() if (most := m.capacity) is not None}
        racks = [members[consumer].rack for consumer in consumers]
        known = {rack for rack in racks if rack is not None}
        self._rack_of = {p: rack for p, rack in given.racks.items() if rack in known}
        self._racks = racks
        self._answer: dict[TopicPartition, str] = {}

    def assign(self) -> dict[TopicPartition, str]:
        """All levels, one after the other."""
        alike: dict[tuple[int, ...], list[str]] = defaultdict(list)  # classes that read -> topics
        topics = sorted({topic for group in self._classes for topic in group.topics})
        for topic in topics:
            alike[tuple(n for n, group in enumerate(self._classes) if topic in group.topics)].append(topic)
        kinds: dict[tuple[int, int, tuple[int, ...]], list[Pair]] = {}
        weights = self._weights(len(alike))
        for readers, names in sorted(alike.items()):
            order = canonical(names, self._given.partitions)
            by_weight: dict[int, list[Pair]] = defaultdict(list)
            for pair, weight in zip(order, map(weights.get, order, repeat(1)), strict=False):
                by_weight[weight].append(pair)
            kinds.update(((-weight, len(readers), readers), pairs) for weight, pairs in by_weight.items())
        rest = sum(-negative * len(pairs) for (negative, _, _), pairs in kinds.items())
        for (negative, _, readers), pairs in sorted(kinds.items(), key=lambda item: item[0]):
            here = sorted(self._index[t] for n in readers for t in self._classes[n].threads)
            slack = len(here) if len(self._classes) == 1 else 0
            self._level(pairs, -negative, here, min(rest, -negative * (len(pairs) + slack)))
            rest += negative * len(pairs)
        return self._answer

    def _weights(self, alike: int) -> dict[Pair, int]:
        """The weights, rounded down unless there are capacities; partitions without one weigh 1."""
        weights = self._given.weights
        numbers = set(weights.values()) | {1}
        bits = max(numbers).bit_length()
        if not self._room:
            bits = min(bits, BITS_MAX)
            while bits > 1 and len({_rounded(w, bits) for w in numbers}) * len(self._threads) * alike > WORK_MAX:
                bits -= 1
        table = {weight: _rounded(weight, bits) for weight in numbers}
        return dict(zip(weights, map(table.__getitem__, weights.values()), strict=True))

    def _level(self, pairs: list[Pair], weight: int, here: list[int], below: int) -> None:
        """Give the partitions of one weight (in canonical order) to the threads `here`, in canonical order."""
        loads = [self._load[index] for index in here]
        limits = self._limits(here, loads, weight, len(pairs))
        count = min(len(pairs), sum(limits)) if limits is not None else len(pairs)
        line = _risen(_water_line(loads, below), count, weight, loads, limits)
        base = [max(line - load, -1) // weight if load <= line else 0 for load in loads]
        more = [load <= line for load in loads]
        if limits is not None:
            more = [flag and b < most for flag, b, most in zip(more, base, limits, strict=True)]
            base = [min(b, most) for b, most in zip(base, limits, strict=True)]
        owners = self._owners(pairs, here)
        if self._rack_of and any(pair in self._rack_of for pair in pairs):
            shares = _shares(count, base, more, loads, weight, held=None)
            taken = self._by_rack(pairs, owners, here, shares)
        else:
            held = Counter(owners)
            caps = _shares(count, base, more, loads, weight, held=[held[n] for n in range(len(here))], most=True)
            taken = _keep(pairs, owners, caps)
            kept = Counter(taken.values())
            pool = [pair for pair in pairs if pair not in taken] if len(taken) < len(pairs) else []
            opens = [cap - kept[n] for n, cap in enumerate(caps)]
            rows = _emptiest(len(pool), opens, [load + kept[n] * weight for n, load in enumerate(loads)], weight)
            taken.update(zip(pool, _row(rows), strict=False))
        self._give(taken, here, weight)

    def _give(self, taken: Mapping[Pair, int], here: list[int], weight: int) -> None:
        names = [self._threads[index] for index in here]
        self._answer.update(zip(as_partitions(taken), map(names.__getitem__, taken.values()), strict=True))
        for n, number in Counter(taken.values()).items():
            self._load[here[n]] += number * weight
            if self._room and self._consumers[here[n]] in self._room:
                self._room[self._consumers[here[n]]] -= number * weight

    def _owners(self, pairs: list[Pair], here: list[int]) -> list[int | None]:
        """Of each partition the place in `here` of the thread that owns it."""
        place = {self._threads[index]: n for n, index in enumerate(here)}
        owned: Mapping[Pair, str] = self._given.owned  # type: ignore[assignment]
        return list(map(place.get, map(owned.get, pairs)))  # type: ignore[arg-type]

    def _limits(self, here: list[int], loads: list[int], weight: int, most: int) -> list[int] | None:
        """How many each thread may have at this level by its consumer's capacity; None: there are no capacities."""
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
            rows = _emptiest(number, [most] * len(places), [loads[n] for n in places], weight)
            for n, share in zip(places, rows, strict=True):
                limits[n] = share
        return limits

    def _by_rack(
        self, pairs: list[Pair], owners: list[int | None], here: list[int], shares: list[int]
    ) -> dict[Pair, int]:
        """Fill the threads' shares: with partitions of their rack, then with others, owned ones first."""
        owner_of = dict(zip(pairs, owners, strict=True))
        of_rack: dict[str | None, list[Pair]] = defaultdict(list)
        for pair in pairs:
            of_rack[self._rack_of.get(pair)].append(pair)  # type: ignore[call-overload]
        threads_of: dict[str | None, list[int]] = defaultdict(list)
        for n, index in enumerate(here):
            threads_of[self._racks[index]].append(n)
        opens = list(shares)
        taken: dict[Pair, int] = {}
        for rack in sorted(rack for rack in of_rack if rack is not None):
            inside = set(threads_of[rack])
            taken |= _fill(of_rack[rack], owner_of, [left if n in inside else 0 for n, left in enumerate(opens)])
            for n, number in Counter(taken[pair] for pair in of_rack[rack] if pair in taken).items():
                opens[n] -= number
        return taken | _fill([pair for pair in pairs if pair not in taken], owner_of, opens)


def _rounded(weight: int, bits: int) -> int:
    """
    >>> [_rounded(weight, 2) for weight in (1, 3, 5, 100)]
    [1, 3, 4, 96]
    """
    cut = max(weight.bit_length() - bits, 0)
    return weight >> cut << cut


def _thread_key(thread: str) -> tuple[int, str]:
    consumer, _, number = thread.rpartition("-")
    return int(number), consumer


def _water_line(loads: list[int], below: int) -> int:
    """The whole part of the level at which `below` would stand, poured over the loads.

    >>> _water_line([0, 0, 5], 4), _water_line([0, 0, 5], 16)
    (2, 7)
    """
    total, line = below, 0
    for number, load in enumerate(sorted(loads), 1):
        if number > 1 and load * (number - 1) >= total:
            break
        total += load
        line = total // number
    return line


def _places(line: int, weight: int, load: int) -> int:
    """How many partitions a thread may have until it is above the line."""
    return (line - load) // weight + 1 if load <= line else 0


def _risen(line: int, count: int, weight: int, loads: list[int], limits: list[int] | None) -> int:
    """The lowest line, from `line` on, under which `count` places begin: without limits `line` itself."""
    if limits is None:
        return line
    numbers = Counter(zip(loads, limits, strict=True))

    def enough(line: int) -> bool:
        return sum(min(_places(line, weight, load), most) * n for (load, most), n in numbers.items()) >= count

    low, step = line - 1, 1
    while not enough(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _shares(
    count: int,
    base: list[int],
    more: list[bool],
    loads: list[int],
    weight: int,
    *,
    held: list[int] | None,
    most: bool = False,
) -> list[int]:
    """The number for each thread: `base`, and of those that may have one more so many that `count` fits.

    First those that hold more than `base`, then the emptiest. When all fits into `base`: `base` if `most`, else the
    emptiest places of it.
    """
    over = count - sum(base)
    if over <= 0:
        return list(base) if most else _emptiest(count, base, loads, weight)
    able = [n for n, flag in enumerate(more) if flag]
    first = [n for n in able if held is not None and held[n] > base[n]][:over]
    chosen = set(first)
    others = sorted((n for n in able if n not in chosen), key=lambda n: (loads[n] + base[n] * weight, n))
    chosen.update(others[: over - len(first)])
    return [number + (n in chosen) for n, number in enumerate(base)]


def _emptiest(count: int, opens: list[int], loads: list[int], weight: int) -> list[int]:
    """`count` places among the open ones, each the one with the least load below it; how many of each thread."""
    total = sum(opens)
    if count >= total:
        return list(opens)
    if count == 0:
        return [0] * len(opens)
    low, high = min(loads), max(load + free * weight for load, free in zip(loads, opens, strict=True))
    numbers = Counter(zip(loads, opens, strict=True))
    while low < high:  # the highest line below which fewer than `count` places begin
        middle = (low + high + 1) // 2
        begun = sum(min(free, -((load - middle) // weight)) * n for (load, free), n in numbers.items() if load < middle)
        if begun <= count:
            low = middle
        else:
            high = middle - 1
    taken = [min(free, -((load - low) // weight)) if load < low else 0 for load, free in zip(loads, opens, strict=True)]
    left = count - sum(taken)
    heap = [
        (load + t * weight, n) for n, (load, t, free) in enumerate(zip(loads, taken, opens, strict=True)) if t < free
    ]
    heapify(heap)
    for _ in range(left):
        load, n = heap[0]
        taken[n] += 1
        if taken[n] < opens[n]:
            heapreplace(heap, (load + weight, n))
        else:
            heappop(heap)
    return taken


def _keep(pairs: Iterable[Pair], owners: Iterable[int | None], caps: list[int]) -> dict[Pair, int]:
    """What stays: of each thread the canonically first of what it owns, up to its number."""
    left = list(caps)
    kept = {}
    for pair, n in zip(pairs, owners, strict=True):
        if n is not None and left[n] > 0:
            left[n] -= 1
            kept[pair] = n
    return kept


def _fill(pairs: list[Pair], owner_of: Mapping[Pair, int | None], opens: list[int]) -> dict[Pair, int]:
    """Owned ones first, then the others along the open places, thread by thread."""
    taken = _keep(pairs, [owner_of[pair] for pair in pairs], opens)
    kept = Counter(taken.values())
    pool = (pair for pair in pairs if pair not in taken)
    rows = [number - kept[n] for n, number in enumerate(opens)]
    taken.update(zip(list(pool), _row(rows), strict=False))
    return taken


def _row(numbers: list[int]) -> chain[int]:
    """Each thread's place as often as its number says."""
    return chain.from_iterable(repeat(n, number) for n, number in enumerate(numbers))
