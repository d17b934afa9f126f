"""Chooses the partitions that are read in one of their own racks: as many as the threads' shares allow, owned ones
first.

A partition is read well in several racks, those of its replicas (KIP-392, KIP-881). Partitions with the same racks are
one *kind*. A table (`rack_transport`) says how many of each kind go to each rack. Its sums follow from the partitions
and the shares.

By `sticky`'s scheme the allowed shapes are the tables with the most partitions in one of their own racks. Pairs of
partition and thread are taken greedily: first owned partitions, those in their own racks before the others; then the
rest, kind by kind and rack by rack, both in canonical order; then whatever is left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, repeat, starmap
from typing import cast

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.sticky.classes import canonical_pairs
from zkcoord.core.assignors.sticky.rack_transport import Kind, Table

Racks = frozenset[str]

CELLS_MAX = 400
"""The largest number of kinds times their racks, at about 0.3 ms each; three replicas in eight racks make 168. Above
this limit only one rack of each partition counts."""


def racks_that_count(given: AssignorInput) -> dict[Racks, Racks]:
    """Keep, of each partition's racks, those that have a member. Empty when all partitions are alike."""
    used = {member.rack for member in given.subscribers if member.rack is not None}
    if not used or not given.racks:
        return {}
    found = {racks: racks & used for racks in set(given.racks.values())}
    alike = set(found.values())
    known = cast(Mapping[tuple[str, int], Racks], given.racks)
    if len(alike) == 1 and all(map(known.__contains__, canonical_pairs(given.partitions, given.partitions))):
        return {}
    return found if any(alike) else {}


def fill_near(
    racks: Sequence[Racks], owners: Sequence[int | None], racks_here: Sequence[str | None], shares: Sequence[int]
) -> list[int | None]:
    """Return each partition's thread; None where the shares are full. Partitions and threads are indices, in canonical
    order.

    `racks` and `owners` hold the racks and the owner (a thread's index) of each partition. `racks_here` and `shares`
    hold the rack of each thread, and the number of partitions that it takes.
    """
    names = sorted({rack for rack in racks_here if rack is not None})
    column: dict[str | None, int] = {rack: index for index, rack in enumerate(names)}
    columns = [column.get(rack, len(names)) for rack in racks_here]
    kind_of: dict[Racks, Kind] = {one: tuple(sorted(column[r] for r in one if r in column)) for one in set(racks)}
    if sum(map(len, set(kind_of.values()))) > CELLS_MAX:
        each = _one_rack_each(list(map(kind_of.__getitem__, racks)))
        row = _rows_of(set(each))
        return _Filling(list(row), list(map(row.__getitem__, each)), owners, columns, shares).fill()
    row = _rows_of(set(kind_of.values()))
    row_of = {one: row[kind] for one, kind in kind_of.items()}
    return _Filling(list(row), list(map(row_of.__getitem__, racks)), owners, columns, shares).fill()


def _rows_of(kinds: Iterable[Kind]) -> dict[Kind, int]:
    """Number the kinds, those with the fewest racks first."""
    return {kind: index for index, kind in enumerate(sorted(kinds, key=lambda kind: (len(kind), kind)))}


def _one_rack_each(kinds: Sequence[Kind]) -> list[Kind]:
    """Choose one rack of each partition, in turn."""
    return [kind[place % len(kind) :][:1] if kind else kind for place, kind in enumerate(kinds)]


def laid_along(threads: Iterable[int], opens: Iterable[int]) -> Iterator[int]:
    """Repeat each thread's index once for every partition that it may still take."""
    return chain.from_iterable(starmap(repeat, compress(zip(threads, opens, strict=False), opens)))


class _Filling:
    """Invariant: `opens` is what is left of the threads' shares after `taken`, and the table keeps what was taken."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        rows: list[int],
        owners: Sequence[int | None],
        column: Sequence[int],
        shares: Sequence[int],
    ) -> None:
        self._kinds, self._rows, self._owners, self._column, self._opens = kinds, rows, owners, column, list(shares)
        self._taken = list(owners)
        numbers = Counter(rows)
        places = [0] * (max(column, default=0) + 1)
        for index, share in zip(column, shares, strict=True):
            places[index] += share
        self._held = self._holdings()
        self._table = Table(kinds, [numbers[row] for row in range(len(kinds))], places)
        self._table.settle({(row, column): len(held) for (far, row, column), held in self._held.items() if not far})

    def fill(self) -> list[int | None]:
        """Give the owned partitions, then those that can be read in one of their racks, then the others."""
        for (far, row, column), held in sorted(self._held.items()):
            self._keep(held, row, column, far=far)
        pools: list[list[int]] = [[] for _ in self._kinds]
        for place in [place for place, n in enumerate(self._taken) if n is None]:
            pools[self._rows[place]].append(place)
        inside = defaultdict[int, list[int]](list)
        for n, column in enumerate(self._column):
            inside[column].append(n)
        room = {column: sum(map(self._opens.__getitem__, threads)) for column, threads in inside.items()}
        for row, (pool, kind) in enumerate(zip(pools, self._kinds, strict=True)):
            for column in kind:
                number = self._table.keep(row, column, min(len(pool), room[column]))
                if number:
                    self._lay(pool[:number], inside[column])
                    room[column] -= number
                    del pool[:number]
        self._lay(sorted(chain.from_iterable(pools)), range(len(self._opens)))
        return self._taken

    def _holdings(self) -> dict[tuple[bool, int, int], list[int]]:
        """Return (not in one of its racks, kind, column of its rack) -> the owned partitions, in canonical order."""
        found = [defaultdict[int, list[int]](list) for _ in self._kinds]
        at = self._column
        for place, (row, n) in enumerate(zip(self._rows, self._owners, strict=True)):
            if n is not None:
                found[row][at[n]].append(place)
        return {
            (column not in self._kinds[row], row, column): held
            for row, columns in enumerate(found)
            for column, held in columns.items()
        }

    def _keep(self, held: Iterable[int], row: int, column: int, *, far: bool) -> None:
        """Leave these partitions with their owners, as far as the shares and the table allow. Take the others away."""
        opens, taken, owners = self._opens, self._taken, cast(Sequence[int], self._owners)
        able = []
        for place in held:
            n = owners[place]
            if opens[n]:
                opens[n] -= 1
                able.append(place)
            else:
                taken[place] = None
        number = (self._table.keep_far if far else self._table.keep)(row, column, len(able))
        for place in able[number:]:
            opens[owners[place]] += 1
            taken[place] = None

    def _lay(self, pool: Iterable[int], threads: Sequence[int]) -> None:
        row = list(laid_along(threads, [self._opens[n] for n in threads]))
        for place, n in zip(pool, row, strict=False):
            self._taken[place] = n
            self._opens[n] -= 1
