"""Courses that are the same up to a step are played together: what they share once, and from there each in a fork."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tests.sim.course import NEVER_STEP, Course, HaltError, Look

if TYPE_CHECKING:
    from tests.sim.world import World

SHARED_MIN = 100
"""Steps that courses share; with less each is played by itself."""


class Family(Course):
    """What some courses share. Where they part a child is forked for each of them; it plays on with its own."""

    members: Sequence[Course]
    parts_at: int
    alone: Course | None  # in a child: the course that it plays
    answers: list[Any]  # of the children
    forks: bool  # whether they could be forked
    _pipe: int  # in a child: where its answer goes

    def __new__(cls, members: Sequence[Course], look: Look) -> Family:
        parts_at = parting(members)
        family = super().__new__(cls, int(members[0]), members[0].before(parts_at), look)
        family.members, family.parts_at, family.alone, family.answers = members, parts_at, None, []
        family.forks, family._pipe = True, -1
        return family

    def passed(self, world: World) -> int:
        """The world is about to make a step: do what is due at it; returns the step to be asked at next."""
        if world.steps < self.parts_at:
            return min(super().passed(world), self.parts_at)
        self.forks = len(sys._current_frames()) == 1  # a child has no other thread of its parent
        for member in self.members if self.forks else ():
            if self._fork(member):
                world.course = world.seed = self.alone = member.seen_by(self.look) if self.look else member
                return self.alone.passed(world)
        raise HaltError("what the courses share ends here")

    def _fork(self, member: Course) -> bool:
        """True in the child. The parent waits for its answer."""
        reads, writes = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reads)
            self._pipe = writes
            return True
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        if not said:
            raise RuntimeError(f"the child that played {member!r} ended without an answer")
        self.answers.append(pickle.loads(said))
        return False

    def answer(self, played: Callable[[], Any]) -> list[Any]:
        """What `played` returns, of each of the courses; none if they must be played one by one."""
        try:
            found = played()
            if self.alone is not None:
                with os.fdopen(self._pipe, "wb") as pipe:
                    pickle.dump(found, pipe)
        finally:
            if self._pipe >= 0:
                os._exit(0)  # the rest of the program is its parent's
        if self.answers or not self.forks:
            return self.answers
        return [found] * len(self.members)  # it ended before they part


def parting(courses: Sequence[Course]) -> int:
    """The first step at which these do not all do the same; 0 where their seeds differ."""
    if len({int(each) for each in courses}) > 1:
        return 0
    shared = 0
    while len({each.events[shared : shared + 1] for each in courses}) == 1 and courses[0].events[shared:]:
        shared += 1
    return min((each.events[shared].step for each in courses if each.events[shared:]), default=NEVER_STEP)


def families(courses: Iterable[Course]) -> Iterator[list[Course]]:
    """Neighbours that share much stand together."""
    family: list[Course] = []
    for course in courses:
        if family and parting([*family, course]) < SHARED_MIN:
            yield family
            family = []
        family.append(course)
    if family:
        yield family
