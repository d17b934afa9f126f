"""Storms over whole programs: the real `Consumer` with its threads, user code that reads, callbacks that take long."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.sim.options import seeds
from tests.sim.programs import PlainProgram, Program, Programs
from tests.sim.records import Records
from tests.sim.scenarios import STORM_MS, Scene
from tests.sim.script import ScriptWorld
from tests.sim.seam import simulated
from tests.sim.sweep import fingerprints
from tests.sim.world import World

SEEDS = 30
TOPICS = {"t": 6, "u": 2}


class ProgramWorld(ScriptWorld):
    """Programs need no time but what they wait: none passes while one can go on."""

    def _behind(self) -> bool:
        return super()._behind() or any(p.inbox.items and not p.paused for p in self.processes.values())


class ProgramScene(Scene):
    """A group of programs, the checkers of records attached."""

    def __init__(self, world: World, kind: Callable[..., Program], **settings: Any) -> None:
        self._kind, self._settings = kind, settings
        self.programs: Programs | None = None
        super().__init__(world, consumers=0, topics=TOPICS)
        self.programs = Programs(world, self.logs, dict.fromkeys(TOPICS, 1))
        self.records = Records(world, self.field, self.logs)

    def join(self, name: str) -> None:
        """One more program starts."""
        assert self.programs is not None
        self.programs.spawn(name, self._kind, **self._settings)

    def leave(self, name: str) -> None:
        """A program is asked to leave."""
        program = self.world.processes[name].actor
        self.world.processes[name].restarts = False
        if isinstance(program, Program):
            program.leave()


@cache
def plain(seed: int) -> Records:
    """One seed of a group of plain consumers, and the calm after it."""
    world = ProgramWorld(seed, None)
    scene = ProgramScene(world, PlainProgram, rebalance_timeout_ms=8_000, hang_rate=(0.0, 0.02)[seed // 2 % 2])
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        for n in range(3):
            scene.join(f"consumer{n}")
        if seed % 2:
            world.run_for(5_000)
        for action in (
            lambda: scene.join("late"),
            lambda: scene.leave("consumer0"),
            lambda: scene.grow("t", TOPICS["t"] + 2),
            lambda: scene.delete_topic("u"),
            lambda: scene.create_topic("u", TOPICS["u"]),
        ):
            world.at(world.now_ms + int(world.rng.random() * STORM_MS), action)
        world.storm(4_000)
        scene.calm()
    return scene.records


def plain_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """What tells two runs of one seed apart."""
    return plain(seed)._world.random_fingerprint()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_plain_programs_ends_in_a_calm(seed: int) -> None:
    plain(seed)


def test_a_seed_of_programs_is_the_same_world_under_every_hash_seed() -> None:
    by_hash_seed = fingerprints("tests.sim.test_programs:plain_fingerprint", range(3))
    assert len({tuple(prints) for prints in by_hash_seed.values()}) == 1, by_hash_seed


def test_storms_of_programs_reach_work_that_was_told_to_end_and_programs_that_hang() -> None:
    reached = [plain(seed) for seed in range(SEEDS)]
    assert sum(each.overlaps > 0 for each in reached) >= 3
    assert sum(each.handed > 100 for each in reached) >= SEEDS // 2
