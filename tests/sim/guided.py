"""The guided search: a course that shows something new is kept, and is varied near the moment at which it did so.

Ways to vary a course and kinds of faults are counted for each view. Those that have shown more are tried more often.

The search is deterministic: the same first seed and count play the same courses, on any number of cores. It plays in
rounds: the results of one round decide the courses of the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from tests.sim.course import Course, Event, Halt, Strike, Turn
from tests.sim.families import parting
from tests.sim.features import Feature, Sight
from tests.sim.options import FAULTS

T = TypeVar("T")
ROUND = 32
"""Courses that are drawn before the first of them is looked at."""

SIBLINGS = 6
"""A course is varied so often at once: what these share is played once (`tests/sim/families.py`)."""

FRESH_RATE = 0.4  # how often a fresh seed is drawn instead of varied courses
MOVED_RATE = 0.8  # of the events that are taken away, how many come at another step
FAULTS_RATE = 0.5  # how many turns also draw other faults
STRIKES_MAX = 3  # at one variation
THERE_RATE = 0.7  # how many strikes hit the process at which something rare was seen
EVENTS_MAX = 12
SAMPLE = 8
NEAR_RATE = 0.5
BACK_STEPS, ON_STEPS = 10, 50
"""A course is varied at most so long before, or behind, the moment at which something new was seen."""

HALT_RATE, HALT_STEPS = 0.9, 400
"""So many of the varied courses are played on for so many steps only, and neither to the storm's end nor to a rest."""

WAYS = {"turned": 3, "struck": 5, "moved": 1, "spliced": 1}
"""How courses are varied, each with how often it is tried at first."""

EDGE_RATE, DEEPER, EDGE_COURSES = 0.6, 1.5, 4
"""So many are varied where an invariant is near: by so much the more often what is one part nearer to it. Of each
feature there so many courses are kept."""

NEWS_MIN, TRIES_MIN = 1, 3
"""What each way, and each kind of fault, is counted to have shown before it is tried."""


class Played(NamedTuple):
    """A course that was played, its features and where each was seen first, and whether it failed."""

    course: Course
    features: dict[Feature, Sight]
    failed: bool = False


class Kept(NamedTuple):
    """A course, the feature that it reached first of all courses, and where it did so."""

    course: Course
    feature: Feature
    sight: Sight


class Yields:
    """How often each way was tried for a view, and how often it showed something new of this view."""

    def __init__(self) -> None:
        self._tries: Counter[tuple[str, str]] = Counter()
        self._news: Counter[tuple[str, str]] = Counter()

    def choose(self, rng: Random, view: str, choices: Mapping[str, int]) -> str:
        """Choose one of `choices` (name -> its first weight): a name that has shown more is chosen more often."""
        names = sorted(choices)
        return rng.choices(names, [choices[name] * self._rate(view, name) for name in names])[0]

    def _rate(self, view: str, name: str) -> float:
        return (NEWS_MIN + self._news[view, name]) / (TRIES_MIN + self._tries[view, name])

    def tried(self, view: str, names: Iterable[str], *, new: bool) -> None:
        """Count a course that was varied in these ways; `new`: it showed something new of this view."""
        for name in set(names):
            self._tries[view, name] += 1
            self._news[view, name] += new


class Search:
    """Chooses the courses to play. `draw` a round, play it, and `take` its results."""

    def __init__(self, first: int, start: Sequence[Course] = ()) -> None:
        """`start`: courses that are played before all others."""
        self.kept: dict[str, list[Kept]] = {}  # view (a feature's first word) -> courses
        self.known: Counter[Feature] = Counter()  # feature -> on how many courses it was seen
        self.views: Counter[str] = Counter()  # view -> on how many courses a feature of it was seen
        self._rng = Random(f"guided {first}")
        self._edges: dict[str, list[Kept]] = {}  # like `kept`: courses near the violation of an invariant
        self._seed, self._start = first, list(start)
        self._tries: Counter[Kept] = Counter()
        self._yields = Yields()
        self._varied: dict[Course, tuple[str, list[str]]] = {}  # being played: for which view, and varied in which ways

    def draw(self, count: int = ROUND) -> list[Course]:
        """The next courses to be played."""
        started, self._start = self._start[:count], self._start[count:]
        while len(started) < count:
            started += self._next()[: count - len(started)]
        return started

    def take(self, played: Played) -> bool:
        """Take in the features of a played course; True when the course is kept. A failed course is a finding, and is
        not varied."""
        view, names = self._varied.pop(played.course, ("", []))
        if played.failed:
            return False
        new = {feature: sight for feature, sight in played.features.items() if feature not in self.known}
        self.known.update(played.features.keys())
        self.views.update({feature[0] for feature in played.features})
        self._yields.tried(view, names, new=any(feature[0] == view for feature in new))
        course = played.course.unhalted()
        for feature, sight in new.items():
            self.kept.setdefault(feature[0], []).append(Kept(course, feature, sight))
        for feature, sight in played.features.items():
            if sight.depth and self.known[feature] <= EDGE_COURSES:
                self._edges.setdefault(feature[0], []).append(Kept(course, feature, sight))
        return bool(new)

    def _next(self) -> list[Course]:
        """A fresh seed, or variations of a course near a moment at which few other courses have been."""
        if not self.kept or self._rng.random() < FRESH_RATE:
            self._seed += 1
            return [Course(self._seed - 1)]
        kept = self._edge() if self._edges and self._rng.random() < EDGE_RATE else self._rare()
        self._tries[kept] += 1
        varied = [self._vary(kept) for _ in range(SIBLINGS)]
        return sorted(varied, key=lambda each: parting([kept.course, each]) < kept.sight.step - BACK_STEPS)

    def _vary(self, kept: Kept) -> Course:
        """The course, with something else near the moment for which it is kept."""
        rng = self._rng
        way = self._yields.choose(rng, kept.feature[0], WAYS)
        events = tuple(getattr(self, f"_{way}")(kept, self._near(kept)))
        if len(events) > EVENTS_MAX:
            return Course(rng.getrandbits(24))
        kinds = [event.kind for event in events if isinstance(event, Strike) and event not in kept.course.events]
        if rng.random() < HALT_RATE:
            events += (Halt(max([kept.sight.step, *(event.step for event in events)]) + HALT_STEPS),)
        varied = kept.course.with_events(events)
        self._varied[varied] = kept.feature[0], [way, *kinds]
        return varied

    def _rare(self) -> Kept:
        """Draw a few courses of one view, and return the one that was seen and tried least. The fewer courses show a
        view, the more often the view is chosen."""
        views = sorted(self.kept)
        within = self.kept[self._rng.choices(views, [1 / self.views[view] for view in views])[0]]
        sample = [self._pick(within) for _ in range(SAMPLE)]
        return min(sample, key=lambda each: self.known[each.feature] + self._tries[each])

    def _edge(self) -> Kept:
        """A course near the violation of an invariant. The nearer it is, and the less often it was seen and tried, the
        more often it is chosen."""
        within = self._edges[self._pick(sorted(self._edges))]
        weights = [DEEPER**each.sight.depth / (self.known[each.feature] + self._tries[each]) for each in within]
        return self._rng.choices(within, weights)[0]

    def _near(self, kept: Kept) -> int:
        """The step at which a course is varied: mostly at the moment at which something rare was seen."""
        ahead = BACK_STEPS if self._rng.random() < NEAR_RATE else ON_STEPS
        return max(1, kept.sight.step - BACK_STEPS + int(self._rng.random() * (BACK_STEPS + ahead)))

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.random() * len(choices))]

    # the ways to vary a course

    def _turned(self, kept: Kept, step: int) -> Iterable[Event]:
        """From this step on everything is drawn anew."""
        turn = Turn(step, self._rng.getrandbits(24), self._rng.random() < FAULTS_RATE)
        return (*kept.course.before(step), turn)

    def _struck(self, kept: Kept, step: int) -> Iterable[Event]:
        """Add some faults; later events stay."""
        rng = self._rng
        strikes = []
        for _ in range(1 + int(rng.random() * STRIKES_MAX)):
            name = kept.sight.name if rng.random() < THERE_RATE else ""
            kind = self._yields.choose(rng, kept.feature[0], dict.fromkeys(FAULTS, 1))
            strikes.append(Strike(step, kind, name, rng.getrandbits(24)))
            step += int(rng.random() * ON_STEPS)
        return (*kept.course.events, *strikes)

    def _moved(self, kept: Kept, step: int) -> Iterable[Event]:
        """Leave one event out, or move it to another step."""
        events = list(kept.course.events)
        if not events:
            return self._struck(kept, step)
        event = events.pop(int(self._rng.random() * len(events)))
        if self._rng.random() < MOVED_RATE:
            events.append(event._replace(step=max(1, event.step + int((self._rng.random() - 0.5) * 2 * ON_STEPS))))
        return events

    def _spliced(self, kept: Kept, step: int) -> Iterable[Event]:
        """Keep the course up to this step, and append the later events of another course."""
        other = self._rare()
        begin = other.sight.step - BACK_STEPS
        behind = [event._replace(step=event.step - begin + step) for event in other.course.behind(begin)]
        return (*kept.course.before(step), *behind) if behind else self._struck(kept, step)


def search(
    found: Search, count: int | None, plays: Callable[[Iterable[Course]], Iterable[Played]], at_once: int | None = None
) -> Iterator[tuple[Played, bool]]:
    """Play this many courses (None: without end), and say for each whether it is kept. `plays` returns results in the
    order of its courses. `at_once`: courses of one round (None: ROUND)."""
    left, most = count, at_once or ROUND
    while left is None or left > 0:
        drawn = found.draw(most if left is None else min(most, left))
        left = None if left is None else left - len(drawn)
        for played in plays(drawn):
            yield played, found.take(played)
