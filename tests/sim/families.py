"""Courses that are the same up to a step are played together: the shared part once, and from there each in a fork."""

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
    """The shared part of some courses. At the step where they part, a child is forked for each course and plays it
    on."""

    members: Sequence[Course]
    parts_at: int
    alone: Course | None  # in a child: the course that the child plays
    answers: list[Any]  # of the children
    forks: bool  # False when the process could not fork
    _pipe: int  # in a child: the pipe for its answer

    def __new__(cls, members: Sequence[Course], look: Look) -> Family:
        parts_at = parting(members)
        family = super().__new__(cls, int(members[0]), members[0].before(parts_at), look)
        family.members, family.parts_at, family.alone, family.answers = members, parts_at, None, []
        family.forks, family._pipe = True, -1
        return family

    def passed(self, world: World) -> int:
        """Called when the world is about to make a step: do what is due. Returns the step at which to call this
        again."""
        if world.steps < self.parts_at:
            return min(super().passed(world), self.parts_at)
        self.forks = len(sys._current_frames()) == 1  # a child has only the thread that forked it
        for member in self.members if self.forks else ():
            if self._fork(member):
                world.course = world.seed = self.alone = member.seen_by(self.look) if self.look else member
                return self.alone.passed(world)
        raise HaltError("what the courses share ends here")

    def _fork(self, member: Course) -> bool:
        """Returns True in the child. The parent waits for the child's answer, and returns False."""
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
        """The result of `played` for each of the courses; empty if the courses must be played one by one."""
        try:
            found = played()
            if self.alone is not None:
                with os.fdopen(self._pipe, "wb") as pipe:
                    pickle.dump(found, pipe)
        finally:
            if self._pipe >= 0:
                os._exit(0)  # the rest of the program is for the parent only
        if self.answers or not self.forks:
            return self.answers
        return [found] * len(self.members)  # the world ended before the courses part


def parting(courses: Sequence[Course]) -> int:
    """The first step at which the courses differ; 0 if their seeds differ."""
    if len({int(each) for each in courses}) > 1:
        return 0
    shared = 0
    while len({each.events[shared : shared + 1] for each in courses}) == 1 and courses[0].events[shared:]:
        shared += 1
    return min((each.events[shared].step for each in courses if each.events[shared:]), default=NEVER_STEP)


def families(courses: Iterable[Course]) -> Iterator[list[Course]]:
    """Group neighbouring courses that share a long part."""
    family: list[Course] = []
    for course in courses:
        if family and parting([*family, course]) < SHARED_MIN:
            yield family
            family = []
        family.append(course)
    if family:
        yield family
