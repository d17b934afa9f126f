"""Computes how many partitions of one weight each thread gets: arithmetic on loads, as if water were poured over them.

Threads are indices in a list, and partitions are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import compress, islice


def rounded(weight: int, bits: int) -> int:
    """Round a weight down to its `bits` leading bits.

    >>> [rounded(weight, 2) for weight in (1, 3, 5, 100)]
    [1, 3, 4, 96]
    """
    cut = max(weight.bit_length() - bits, 0)
    return weight >> cut << cut


def rounded_up(weight: int, bits: int) -> int:
    """Round a weight up to its `bits` leading bits.

    >>> [rounded_up(weight, 2) for weight in (1, 3, 5, 100)]
    [1, 3, 6, 128]
    """
    cut = max(weight.bit_length() - bits, 0)
    return -(-weight >> cut) << cut


def water_line(numbers: Mapping[int, int], below: int) -> int:
    """Return the whole part of the water level when the amount `below` is poured over the loads (load -> number of
    threads).

    >>> water_line({0: 2, 5: 1}, 4), water_line({0: 2, 5: 1}, 16)
    (2, 7)
    """
    total, number, line = below, 0, 0
    for load, threads in sorted(numbers.items()):
        if number and load * number >= total:
            break
        total += load * threads
        number += threads
        line = total // number
    return line


def risen(line: int, count: int, weight: int, loads: Sequence[int], limits: Sequence[int]) -> int:
    """Return the lowest line, from `line` on, below which at least `count` places begin that the limits allow."""
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


def _places(line: int, weight: int, load: int) -> int:
    """How many partitions a thread may take until it is above the line."""
    return (line - load) // weight + 1 if load <= line else 0


def under(
    line: int, weight: int, loads: Sequence[int], numbers: Iterable[int], limits: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Return (how many partitions fit under the line at each thread, the threads at which one more may rise above it).

    `numbers` are the loads that occur.
    """
    able = [n for n, load in enumerate(loads) if load <= line]
    if line - min(numbers) < weight:
        base = [0] * len(loads)
    else:
        fits = {load: max(line - load, 0) // weight for load in numbers}
        base = list(map(fits.__getitem__, loads))
    if limits is None:
        return base, able
    return list(map(min, base, limits)), [n for n in able if base[n] < limits[n]]


def spread(
    over: int, base: list[int], able: list[int], loads: Sequence[int], weight: int, *, first: Iterable[int] = ()
) -> list[int]:
    """Return `base` with one more at `over` of the `able` threads: first those in `first`, then the emptiest.

    `able` and `first` are in ascending order. If there are too few, every thread in `able` gets one.
    """
    shares = list(base)
    chosen: set[int] = set()
    if first:
        chosen = set(islice(filter(set(able).__contains__, first), over))
        for n in chosen:
            shares[n] += 1
    if over > len(chosen):
        others = [n for n in able if n not in chosen] if chosen else able
        for n in _lowest(over - len(chosen), others, [loads[n] + base[n] * weight for n in others]):
            shares[n] += 1
    return shares


def _lowest(wanted: int, places: list[int], heights: list[int]) -> list[int]:
    """Return `wanted` of the places, the lowest first (`heights`), then by number. The result is in no order."""
    begun = 0
    for line, number in sorted(Counter(heights).items()):
        if begun + number >= wanted:
            lower = list(compress(places, map(line.__gt__, heights)))
            return lower + list(islice(compress(places, map(line.__eq__, heights)), wanted - begun))
        begun += number
    return places


def emptiest(count: int, opens: list[int], loads: Sequence[int], weight: int) -> list[int]:
    """Fill `count` of the open places, each time the one with the least load below it. Return the number for each
    thread."""
    if count >= sum(opens):
        return list(opens)
    taken = [0] * len(opens)
    if count == 0:
        return taken
    here = [n for n, free in enumerate(opens) if free]
    numbers = Counter((loads[n], opens[n]) for n in here)
    low, high = min(load for load, _ in numbers), max(load + free * weight for load, free in numbers)
    while low < high:  # find the highest line below which at most `count` places begin
        middle = (low + high + 1) // 2
        begun = sum(min(free, -((load - middle) // weight)) * n for (load, free), n in numbers.items() if load < middle)
        if begun <= count:
            low = middle
        else:
            high = middle - 1
    sure = {(load, free): min(free, -((load - low) // weight)) if load < low else 0 for load, free in numbers}
    for n in here:
        taken[n] = sure[loads[n], opens[n]]
    heap = [(loads[n] + taken[n] * weight, n) for n in here if taken[n] < opens[n]]
    heapify(heap)
    for _ in range(count - sum(taken)):
        load, n = heap[0]
        taken[n] += 1
        if taken[n] < opens[n]:
            heapreplace(heap, (load + weight, n))
        else:
            heappop(heap)
    return taken
