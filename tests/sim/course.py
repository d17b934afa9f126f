"""A course: a seed, and the steps at which its world goes on with another one.

Up to a turn a world is the same as without it, behind it everything is drawn anew: so what a seed has reached is kept,
and varied from there. A course is an integer, so that whatever plays a seed plays a course.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.sim.world import World

NEVER_STEP = 1 << 62
LOOK_STEPS = 4
"""A world is looked at once in so many steps of its storm."""

BURST_STEPS, BURST_RATE = 40, 0.2
"""Faults that come together: where something rare was reached, one step in five is a fault for a while."""

FAULT_RATES = (0.005, 0.02, 0.05)

_TURN = re.compile(r"(\d+)(f?):(\d+)")

Look = Callable[["World"], None]


class Turn(NamedTuple):
    """From this step on the world draws from `seed`; with `faults` it has other faults from there, at first many."""

    step: int
    seed: int
    faults: bool = False

    def __str__(self) -> str:
        return f"{self.step}{'f' if self.faults else ''}:{self.seed}"


class Course(int):
    """A seed with turns, in the order of their steps. `look` is called with the world now and then."""

    turns: tuple[Turn, ...]
    look: Look | None

    def __new__(cls, seed: int, turns: Iterable[Turn] = (), look: Look | None = None) -> Course:
        course = super().__new__(cls, seed)
        course.turns, course.look = tuple(turns), look
        return course

    def passed(self, world: World) -> int:
        """The world is about to make a step: turn if it is that of a turn; returns the step to be asked at next."""
        for turn in self.turns:
            if turn.step == world.steps:
                world.rng.seed(turn.seed)
            if turn.faults and world.options.fault_rate:
                if turn.step == world.steps:
                    world.options = world.options.with_other_faults(Random(turn.seed), BURST_RATE)
                elif turn.step + BURST_STEPS == world.steps:
                    world.options = replace(world.options, fault_rate=Random(turn.seed).choice(FAULT_RATES))
        if self.look is not None and world.stormy:
            self.look(world)
        next_look = NEVER_STEP if self.look is None else world.steps + LOOK_STEPS
        steps = [step for turn in self.turns for step in (turn.step, turn.step + BURST_STEPS) if step > world.steps]
        return min([next_look, *steps])

    def varied(self, turn: Turn) -> Course:
        """The same up to the turn's step."""
        return Course(int(self), (*(t for t in self.turns if t.step < turn.step), turn))

    def seen_by(self, look: Look) -> Course:
        """The same, looked at."""
        return Course(int(self), self.turns, look)

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) is True and self.turns == getattr(other, "turns", ())

    def __hash__(self) -> int:
        return hash((int(self), self.turns)) if self.turns else int.__hash__(self)

    def __reduce__(self) -> tuple[type[Course], tuple[int, tuple[Turn, ...]]]:
        return Course, (int(self), self.turns)


def told(seed: int) -> str:
    """A seed or a course, as `course` reads it. (A course's own text is its seed's: scenes draw from that, too.)

    >>> told(course("17@1203:99@1500f:4")), told(17)
    ('17@1203:99@1500f:4', '17')
    """
    return "@".join([str(seed), *map(str, getattr(seed, "turns", ()))])


def course(text: str) -> Course:
    """A seed, or a seed with turns, as a failure prints it; ValueError for another text."""
    seed, *turns = text.strip().split("@")
    found = [_TURN.fullmatch(turn) for turn in turns]
    if not all(found):
        raise ValueError(f"{text!r} is no seed with turns as 17@1203:99")
    return Course(int(seed), [Turn(int(m[1]), int(m[3]), bool(m[2])) for m in found if m])
