"""The guided search: a course that reaches what no other has reached is kept, and varied from the moment it did so.

It is deterministic: the same first seed and count play the same courses, on however many cores. It plays in rounds:
what a round has seen decides what the next one plays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from tests.sim.course import Course, Turn
from tests.sim.features import Feature

ROUND = 32
"""Courses that are drawn before the first of them is looked at."""

FRESH_RATE = 0.2
FAULTS_RATE = 0.5  # of turns: other faults from there on
TURNS_MAX = 12
SAMPLE = 8
BACK_STEPS, ON_STEPS = 10, 50
"""A course turns at most so long before, or behind, the moment at which something new was seen."""


class Played(NamedTuple):
    """A course that was played, what was seen on it, at which step first, and whether it failed."""

    course: Course
    features: dict[Feature, int]
    failed: bool = False


class Kept(NamedTuple):
    """A course, what it has reached first of all, and at which step."""

    course: Course
    feature: Feature
    step: int


class Search:
    """Which courses are worth a try. `draw` a round, play it, `take` what was seen."""

    def __init__(self, first: int, start: Sequence[Course] = ()) -> None:
        """`start`: courses to be played before all others."""
        self.kept: dict[str, list[Kept]] = {}  # by view, a feature's first word
        self.known: Counter[Feature] = Counter()  # on how many courses each was seen
        self._rng = Random(f"guided {first}")
        self._seed, self._start = first, list(start)
        self._tries: Counter[Kept] = Counter()

    def draw(self, count: int = ROUND) -> list[Course]:
        """The next courses to be played."""
        started, self._start = self._start[:count], self._start[count:]
        return started + [self._next() for _ in range(count - len(started))]

    def take(self, played: Played) -> bool:
        """Take in what was seen; True when the course is kept. A failure is a finding, and is not varied."""
        new = {feature: step for feature, step in played.features.items() if feature not in self.known}
        self.known.update(played.features.keys())
        if played.failed:
            return False
        for feature, step in new.items():
            self.kept.setdefault(feature[0], []).append(Kept(played.course, feature, step))
        return bool(new)

    def _next(self) -> Course:
        """A fresh seed, or a course that turns where something was seen that few others have seen."""
        rng = self._rng
        if not self.kept or rng.random() < FRESH_RATE:
            self._seed += 1
            return Course(self._seed - 1)
        within = self.kept[sorted(self.kept)[int(rng.random() * len(self.kept))]]
        sample = [within[int(rng.random() * len(within))] for _ in range(SAMPLE)]
        kept = min(sample, key=lambda each: self.known[each.feature] + self._tries[each])
        self._tries[kept] += 1
        step = max(1, kept.step - BACK_STEPS + int(rng.random() * (BACK_STEPS + ON_STEPS)))
        turn = Turn(step, rng.getrandbits(24), rng.random() < FAULTS_RATE)
        varied = kept.course.varied(turn)
        return varied if len(varied.turns) <= TURNS_MAX else Course(turn.seed)


def search(
    found: Search, count: int | None, plays: Callable[[Iterable[Course]], Iterable[Played]]
) -> Iterator[tuple[Played, bool]]:
    """Play so many courses (None: without end), and say of each whether it is kept. `plays` answers in its order."""
    left = count
    while left is None or left > 0:
        drawn = found.draw(ROUND if left is None else min(ROUND, left))
        left = None if left is None else left - len(drawn)
        for played in plays(drawn):
            yield played, found.take(played)
