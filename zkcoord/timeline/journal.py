"""The hand-overs that journals of coordinators hold, as the coordinators saw them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zkcoord.core.handovers import HandOver
from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.operating.handovers import begun_ms_of
from zkcoord.serving.handovers import ServedHandOvers, document
from zkcoord.serving.role import CoordinatorRole
from zkcoord.shell.journal.replay import Played, replay

SHIFTS = 100
"""The number of steps from which the difference of the wall clock and the monotonic clock is taken. A journal's line
has the wall clock at its step's end, and the monotonic clock at its step's beginning. So the smallest difference of the
last steps is nearest to the true one."""

FIRST, FIRST_BYTES = re.compile(rb'\{"time_ms": ?([0-9]{1,15}),'), 64
"""The beginning of a file's first line, and how many bytes are read to find it."""


class Journaled(NamedTuple):
    """The result of reading journals: the hand-overs of one group as JSON objects, oldest first, and the names of all
    groups in the journals."""

    handovers: list[dict[str, Any]]
    groups: frozenset[str]


def journaled(files: Iterable[Path], group: str, problem: Callable[[str], None]) -> Journaled:
    """Replay the files, and return the hand-overs of the group.

    Give the files of one coordinator in their order: a hand-over that is under way at the end of one file goes on in
    the next. `problem` is called with the reason when a file, or the rest of it, is left out. CorruptError if none of
    the files can be read.
    """
    player = _Player(group)
    errors: list[CorruptError] = []
    for file in files:
        try:
            for played in _steps(file):
                if played.difference is not None:
                    problem(f"{file}: this version decides otherwise at step {played.step}; the rest is left out")
                    break
                player.take(file, played)
        except CorruptError as found:
            errors.append(CorruptError(f"{file}: {found}"))
    raised = errors.pop() if errors and not player.steps else None
    for error in errors:
        problem(f"{error}; it is left out")
    if raised is not None:
        raise raised
    player.run_ends()
    return Journaled(sorted(player.found, key=begun_ms_of), frozenset(player.groups))


def files_within(files: Sequence[Path], since_ms: int | None, until_ms: int | None) -> list[Path]:
    """Leave out the files that end before `since_ms` or begin after `until_ms`, since a full journal takes minutes.

    A file ends when the next file of its folder begins.
    """
    begun_ms = [_begun_ms(file) for file in files]
    kept = []
    for file, mine_ms, after, next_ms in zip(files, begun_ms, [*files[1:], None], [*begun_ms[1:], None], strict=True):
        ended_ms = next_ms if after is not None and after.parent == file.parent else None
        if since_ms is not None and ended_ms is not None and ended_ms < since_ms:
            continue
        if until_ms is None or mine_ms is None or mine_ms < until_ms:
            kept.append(file)
    return kept


def _begun_ms(file: Path) -> int | None:
    """Return when the file's first line was written; None if that line has no time."""
    with file.open("rb") as journal:
        found = FIRST.match(journal.read(FIRST_BYTES))
    return None if found is None else int(found[1])


class _Player:
    """Takes in the steps of the files, one file after the other."""

    def __init__(self, group: str) -> None:
        self.found: list[dict[str, Any]] = []
        self.groups: set[str] = set()
        self.steps = 0  # how many steps were taken in
        self._group, self._last = group, 0
        self._told: dict[tuple[TopicPartition, int | None], dict[str, Any]] = {}  # in this run
        self._kept, self._shifts_ms = ServedHandOvers(), deque[int](maxlen=SHIFTS)

    def take(self, file: Path, played: Played) -> None:
        """Take in the next step."""
        if not isinstance(played.role, CoordinatorRole):
            raise CorruptError(f"{file} is no coordinator's journal")
        if played.step != self._last + 1:
            self.run_ends()
        self.steps, self._last = self.steps + 1, played.step
        self._shifts_ms.append(played.time_ms - played.mono_ms)
        self.groups.update(of.view.group for of in played.role.decided)
        self._add(self._kept.after_step(played.role))
        self._amend(self._kept.amended)

    def run_ends(self) -> None:
        """End the present run of a coordinator: hand-overs that are under way are added as they are."""
        self._add(self._kept.under_way)
        self._kept = ServedHandOvers()
        self._told.clear()
        self._shifts_ms.clear()

    def _add(self, handovers: Iterable[tuple[str, HandOver]]) -> None:
        for name, each in handovers:
            if name == self._group:
                told = document(name, each, min(self._shifts_ms))
                self.found.append(told)
                self._told[each.partition, each.acknowledged_ms] = told

    def _amend(self, handovers: Iterable[tuple[str, HandOver]]) -> None:
        """Add the times of first records that became known after their hand-overs were added. They are computed with
        the difference of the clocks with which the hand-over was added."""
        for name, each in handovers:
            told = self._told.get((each.partition, each.acknowledged_ms)) if name == self._group else None
            if told is not None and each.first_record_ms is not None and each.acknowledged_ms is not None:
                told["first_record_ms"] = told["acknowledged_ms"] + each.first_record_ms - each.acknowledged_ms


def _steps(file: Path) -> Iterator[Played]:
    with file.open(encoding="utf-8", errors="strict") as journal:
        try:
            yield from replay(journal)
        except UnicodeDecodeError as error:
            raise CorruptError(f"no text ({error}): this is no journal") from error
