"""Chooses the columns of a table that fit into a terminal, and their widths. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

READABLE = 24
"""Names of 24 characters can be told apart. Columns without any value are left out before names are cut below that."""

CUT_TO = 12
"""The fewest characters to which a column of text is cut."""

BETWEEN = 2
"""The number of spaces between two columns."""

WHOLE = ("STATE", "OPTION", "AT", "LAST", "SINCE", "WRITTEN", "COMMITTED")
"""Columns of text that are never cut, because words of a fixed list and moments say nothing without their middle."""

EXPENDABLE = (
    *("WRITTEN", "COMMITTED", "LAST", "OWNER"),
    *("PROTOCOLS", "SINCE", "EPOCH", "COORDINATOR", "SEQUENCE", "GENERATION"),
    *("TOPICS", "REPLICAS", "REWINDS", "COMMITS", "GRANT"),
    *("#COMMANDS", "#MEMBERS", "LOG-END-OFFSET"),
)
"""The columns that are left out of a table that is too wide, in this order. After them, other columns are left out from
the right. A table's first column always stays."""


class Fit(NamedTuple):
    """The numbers of the columns that are shown, and their widths."""

    kept: tuple[int, ...]
    widths: tuple[int, ...]


def fit(names: Sequence[str], lines: Sequence[Sequence[str]], right: Collection[str], room: int | None) -> Fit:
    """Return the columns of a table that fit into `room` characters, and their widths. `room` None: all fit.

    `lines`: the cells as text, the header first. `right`: the names of the columns with numbers, which are never cut.
    """
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    kept = list(range(len(names)))
    if room is None:
        return Fit(tuple(kept), tuple(widths))
    uncut = {column for column, name in enumerate(names) if name in right or name in WHOLE}
    order = _leaving(names)
    empty = [column for column in order if len(lines) > 1 and all(line[column] == "-" for line in lines[1:])]
    for least, leaving in ((READABLE, empty), (CUT_TO, order)):
        floors = [
            min(width, width if column in uncut else max(least, len(lines[0][column])))
            for column, width in enumerate(widths)
        ]
        gone = iter([column for column in leaving if column in kept])
        while sum(floors[column] for column in kept) + BETWEEN * (len(kept) - 1) > room:
            column = next(gone, None)
            if column is None:
                break
            kept.remove(column)
        else:
            break
    return Fit(tuple(kept), _shared(kept, widths, floors, room))


def _leaving(names: Sequence[str]) -> list[int]:
    """Return all columns but the first, in the order in which they are left out."""
    rest = range(len(names) - 1, 0, -1)
    return sorted(rest, key=lambda n: EXPENDABLE.index(names[n]) if names[n] in EXPENDABLE else len(EXPENDABLE))


def _shared(kept: Sequence[int], widths: Sequence[int], floors: Sequence[int], room: int) -> tuple[int, ...]:
    """Cut the widest column by one character again and again, until a line fits. No column is cut below its floor."""
    found = {column: widths[column] for column in kept}
    excess = sum(found.values()) + BETWEEN * (len(kept) - 1) - room
    while excess > 0 and (cuttable := [column for column in kept if found[column] > floors[column]]):
        found[max(cuttable, key=lambda column: found[column])] -= 1
        excess -= 1
    return tuple(found.values())
