"""Counts the records that each reader processed, and explains repeats. Pure, except for the classes that read logs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zkcoord.demo.accounting import parse_range


class Record(NamedTuple):
    """One record of the topic."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The count. Repeats are counted by their explanation.

    `by_kill`: a reader of the record was killed. `by_old`: a reader is an old consumer. Its program may still process a
    record when the partition is taken away. `unexplained`: neither of the two.
    """

    produced: int
    processed: int  # how many different records
    lost: int
    by_kill: int
    by_old: int
    unexplained: int

    @property
    def fine(self) -> bool:
        """True when nothing is lost, and every repeat is explained."""
        return self.lost == self.unexplained == 0


def count(
    produced: Mapping[int, int],
    read: Mapping[str, Iterable[Record]],
    *,
    killed: Collection[str] = (),
    old: Collection[str] = (),
) -> Counted:
    """Compare `produced` (partition -> number of records) with the records that each reader processed.

    >>> count({0: 3}, {"a": [Record(0, 0), Record(0, 1)], "x": [Record(0, 1), Record(0, 2)]}, killed=["a"], old=["a"])
    Counted(produced=3, processed=3, lost=0, by_kill=1, by_old=0, unexplained=0)
    """
    readers: dict[Record, list[str]] = {}
    for name, records in sorted(read.items()):
        for record in records:
            readers.setdefault(record, []).append(name)
    repeats = {"by_kill": 0, "by_old": 0, "unexplained": 0}
    for names in readers.values():
        if len(names) > 1:
            repeats[_why(names, killed, old)] += len(names) - 1
    wanted = {Record(partition, offset) for partition, size in produced.items() for offset in range(size)}
    return Counted(produced=len(wanted), processed=len(readers), lost=len(wanted - readers.keys()), **repeats)


def _why(names: Iterable[str], killed: Collection[str], old: Collection[str]) -> str:
    if any(name in killed for name in names):
        return "by_kill"
    return "by_old" if any(name in old for name in names) else "unexplained"


class RecordLog:
    """The records in the log of an old consumer or of `zkcoord consume --output json`, in the order of the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.records: list[Record] = []

    def look(self) -> list[Record]:
        """Return the records since the last call. An incomplete line is read by the next call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        found = [record for line in complete.splitlines() if (record := parse_record(line)) is not None]
        self.records += found
        return found


class OutputLog:
    """The records in PySpark's files. Each file is named by its range."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: set[str] = set()
        self.records: list[Record] = []

    def look(self) -> list[Record]:
        """Return the records of the files that are new since the last call."""
        new = sorted({path.stem for path in self._folder.glob("*.parquet")} - self._taken)
        self._taken.update(new)
        found = [Record(r.partition, o) for r in map(parse_range, new) for o in range(r.start, r.end)]
        self.records += found
        return found


def parse_record(line: bytes) -> Record | None:
    """Return the record in a line; None for any other line.

    >>> parse_record(b'{"topic":"clicks","partition":3,"offset":7,"value":"x"}')
    Record(partition=3, offset=7)
    >>> parse_record(b'{"event":"registered","mono_ms":7}') is None
    True
    """
    if not line.startswith(b"{"):
        return None
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if told.get("event", "record") != "record" or "offset" not in told or "partition" not in told:
        return None
    return Record(told["partition"], told["offset"])
