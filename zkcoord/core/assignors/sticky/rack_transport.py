"""Computes how many partitions of each kind go to which rack, so that as many as possible are in one of their own
racks.

The sums of the table are fixed: a row's sum is the number of partitions of the kind, a column's sum the number of
places of the threads in the rack. One more column and row take misplaced partitions. The column FAR takes partitions
that are read in none of their racks (or by nobody, when places are short). The row ELSEWHERE takes the places that are
left to them. The cell where the two meet is the number of partitions that are read well.

A cell can get one more, beside all that is kept, if numbers can be passed on along a closed way. As in
`residual_graph`, only the existence of such a way counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Kind = tuple[int, ...]
"""The racks in which a partition is read well, ascending."""


class Table:
    """Invariant: the sums hold, and no cell is below its kept number. Once settled, no other table has more partitions
    that are read well."""

    def __init__(self, kinds: Sequence[Kind], counts: Sequence[int], places: Sequence[int]) -> None:
        self._far, self._elsewhere = len(places), len(kinds)
        self._columns_of = [(*kind, self._far) for kind in kinds] + [tuple(range(self._far + 1))]
        self._rows_of: list[list[int]] = [[] for _ in range(self._far + 1)]
        for row, columns in enumerate(self._columns_of):
            for column in columns:
                self._rows_of[column].append(row)
        self._number = [dict.fromkeys(columns, 0) for columns in self._columns_of]
        self._kept = [dict.fromkeys(columns, 0) for columns in self._columns_of]
        for row, count in enumerate(counts):
            self._number[row][self._far] = count
        for column, count in enumerate(places):
            self._number[self._elsewhere][column] = count
        self._choice = any(len(kind) > 1 for kind in kinds)  # else nothing can be passed on

    def settle(self, held: Mapping[tuple[int, int], int]) -> None:
        """Choose the largest number of well-read partitions, for good. `held` (cell -> number) is the starting point,
        and changes no answer."""
        number, far, elsewhere = self._number, self._far, self._elsewhere
        free = {(row, column): number[elsewhere][column] for row in range(elsewhere) for column in number[row]}
        for wanted in (held, free):
            for (row, column), most in sorted(wanted.items()):
                if column != far:
                    amount = min(most, number[row][far], number[elsewhere][column])
                    self._add([(row, column), (elsewhere, far)], amount)
                    self._add([(row, far), (elsewhere, column)], -amount)
        self.keep(elsewhere, far, sum(number[elsewhere].values()))

    def keep(self, row: int, column: int, wanted: int) -> int:
        """Keep `wanted` more in a cell, or as many as fit beside all that is kept. Return the number."""
        most, kept = 0, self._kept[row]
        while most < wanted:
            free = min(self._number[row][column] - kept[column], wanted - most)
            amount = free or self._raise(row, column, wanted - most)
            if not amount:
                break
            kept[column] += amount
            most += amount
        return most

    def keep_far(self, row: int, column: int, wanted: int) -> int:
        """Keep `wanted` partitions of a kind in a rack that is none of theirs, or as many as fit. Return the number."""
        low, high, middle = 0, wanted, wanted
        while low < high:
            if self._keep_both(row, column, middle, for_good=False):
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        self._keep_both(row, column, low, for_good=True)
        return low

    def _keep_both(self, row: int, column: int, wanted: int, *, for_good: bool) -> bool:
        gone = self.keep(row, self._far, wanted)
        come = self.keep(self._elsewhere, column, gone)
        if not for_good:
            self._kept[row][self._far] -= gone
            self._kept[self._elsewhere][column] -= come
        return come == wanted

    def _raise(self, row: int, column: int, wanted: int) -> int:
        """Put up to `wanted` more into a cell of which everything is kept, along one closed way. Return the number; 0:
        there is no way."""
        way = self._way(row, column) if self._choice else []
        if not way:
            return 0
        gives = [(~line, at) for at, line in zip(way[0::2], way[1::2], strict=True)]
        takes = [(~line, at) for line, at in zip(way[1::2], way[2::2], strict=False)]
        amount = min(wanted, *(self._number[line][at] - self._kept[line][at] for line, at in gives))
        self._add(gives, -amount)
        self._add([*takes, (row, column)], amount)
        return amount

    def _way(self, row: int, column: int) -> list[int]:
        """Find a way from a column that has too many to a row, breadth first. In the way a column (its number) gives to
        the next row (~row), which takes from the next column. Empty: there is none."""
        number, kept = self._number, self._kept
        before, queue, goal = {column: column}, [column], ~row
        for node in queue:  # grows while it is walked
            if node < 0:
                steps = [at for at in self._columns_of[~node] if at not in before]
            else:
                lines = (line for line in self._rows_of[node] if number[line][node] > kept[line][node])
                steps = [~line for line in lines if ~line not in before]
            before.update(dict.fromkeys(steps, node))
            queue += steps
            if goal in before:
                break
        else:
            return []
        way = [goal]
        while way[-1] != column:
            way.append(before[way[-1]])
        return way[::-1]

    def _add(self, cells: Sequence[tuple[int, int]], amount: int) -> None:
        for row, column in cells:
            self._number[row][column] += amount
