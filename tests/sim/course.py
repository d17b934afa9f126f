"""A course: a seed, and steps at which something happens that the seed does not draw.

A *turn*: from this step on the world draws from another seed. A *strike*: at this step there is one more fault, and all
other draws stay the same. Up to the first event the world is the same as without events. So a state that a seed has
reached is reached again, and varied from there. A *halt*: the world is not played after this step. A course is an
integer, so that everything that plays a seed can play a course.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.sim import faults

if TYPE_CHECKING:
    from tests.sim.world import World

NEVER_STEP = 1 << 62
LOOK_STEPS = 4
"""A world is looked at once in so many steps of its storm."""

BURST_STEPS, BURST_RATE = 40, 0.2
"""Faults that come together: where something rare was reached, one step in five is a fault for a while."""

FAULT_RATES = (0.005, 0.02, 0.05)

_TURN = re.compile(r"(\d+)(f?):(\d+)")
_STRIKE = re.compile(r"(\d+)!([a-z_]+)\.(\w*):(\d+)")
_HALT = re.compile(r"(\d+)\.")

Look = Callable[["World"], None]


class Turn(NamedTuple):
    """From this step on the world draws from `seed`. With `faults` it has other faults from there on, many at first."""

    step: int
    seed: int
    faults: bool = False

    def __str__(self) -> str:
        return f"{self.step}{'f' if self.faults else ''}:{self.seed}"

    @property
    def asked_at(self) -> tuple[int, ...]:
        """The steps at which `happen` must be called."""
        return self.step, self.step + BURST_STEPS

    def happen(self, world: World) -> None:
        """Do what is due at this step."""
        if self.step == world.steps:
            world.rng.seed(self.seed)
        if not self.faults or not world.options.fault_rate:
            return
        if self.step == world.steps:
            world.options = world.options.with_other_faults(Random(self.seed), BURST_RATE)
        elif self.step + BURST_STEPS == world.steps:
            world.options = replace(world.options, fault_rate=Random(self.seed).choice(FAULT_RATES))


class Strike(NamedTuple):
    """At this step a fault of this kind happens to the process of this name (to any process if the name is empty)."""

    step: int
    kind: str
    name: str
    seed: int  # seed of all that is drawn for this fault

    def __str__(self) -> str:
        return f"{self.step}!{self.kind}.{self.name}:{self.seed}"

    @property
    def asked_at(self) -> tuple[int, ...]:
        """The steps at which `happen` must be called."""
        return (self.step,)

    def happen(self, world: World) -> None:
        """Do what is due at this step; a strike has no effect in a storm without faults."""
        if self.step == world.steps and world.stormy and world.options.fault_rate:
            rng, world.rng = world.rng, Random(self.seed)
            faults.strike(world, self.kind, self.name)
            world.rng = rng


class HaltError(Exception):
    """The course is over, and nothing has failed."""


class Halt(NamedTuple):
    """The world is not played after this step: by then the course has shown what it was made for, or it never will."""

    step: int

    def __str__(self) -> str:
        return f"{self.step}."

    @property
    def asked_at(self) -> tuple[int, ...]:
        """The steps at which `happen` must be called."""
        return (self.step,)

    def happen(self, world: World) -> None:
        """Do what is due at this step."""
        if self.step == world.steps:
            raise HaltError(f"the course ends with step {self.step}")


Event = Turn | Strike | Halt


class Course(int):
    """A seed with events, in the order of their steps. `look` is called with the world every few steps."""

    events: tuple[Event, ...]
    look: Look | None

    def __new__(cls, seed: int, events: Iterable[Event] = (), look: Look | None = None) -> Self:
        course = super().__new__(cls, seed)
        course.events, course.look = tuple(sorted(events, key=lambda event: event.step)), look
        return course

    def passed(self, world: World) -> int:
        """Called when the world is about to make a step: do what is due. Returns the step at which to call this
        again."""
        for event in self.events:
            event.happen(world)
        if self.look is not None and world.stormy:
            self.look(world)
        next_look = NEVER_STEP if self.look is None else world.steps + LOOK_STEPS
        return min([next_look, *(step for event in self.events for step in event.asked_at if step > world.steps)])

    def with_events(self, events: Iterable[Event]) -> Course:
        """The same seed with these events."""
        return Course(int(self), events)

    def before(self, step: int) -> tuple[Event, ...]:
        """The events before this step."""
        return tuple(event for event in self.events if event.step < step)

    def behind(self, step: int) -> tuple[Event, ...]:
        """The events at this step and after it."""
        return tuple(event for event in self.events if event.step >= step)

    def unhalted(self) -> Course:
        """The same course without its halt: it is played to its end."""
        return self.with_events(event for event in self.events if not isinstance(event, Halt))

    def seen_by(self, look: Look) -> Course:
        """The same course, with `look` called on the way."""
        return Course(int(self), self.events, look)

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) is True and self.events == getattr(other, "events", ())

    def __hash__(self) -> int:
        return hash((int(self), self.events)) if self.events else int.__hash__(self)

    def __reduce__(self) -> tuple[type[Course], tuple[int, tuple[Event, ...]]]:
        return Course, (int(self), self.events)


def told(seed: int) -> str:
    """The text of a seed or a course; `course` reads it again. (`str` of a course is its seed's: scenes draw from that,
    too.)

    >>> told(course("17@1203:99@1500f:4")), told(17), told(course("3@7!flap.consumer0:12"))
    ('17@1203:99@1500f:4', '17', '3@7!flap.consumer0:12')
    """
    return "@".join([str(seed), *map(str, getattr(seed, "events", ()))])


def course(text: str) -> Course:
    """A seed, or a seed with events, as a failure prints it; ValueError for another text."""
    seed, *events = text.strip().split("@")
    return Course(int(seed), [_event(event) for event in events])


def _event(text: str) -> Event:
    if turn := _TURN.fullmatch(text):
        return Turn(int(turn[1]), int(turn[3]), bool(turn[2]))
    if (strike := _STRIKE.fullmatch(text)) and strike[2] in faults.INJECTORS:
        return Strike(int(strike[1]), strike[2], strike[3], int(strike[4]))
    if halt := _HALT.fullmatch(text):
        return Halt(int(halt[1]))
    raise ValueError(
        f"{text!r} is neither a turn as 1203:99 nor a strike as 1203!flap.consumer0:99 nor a halt as 1203."
    )
