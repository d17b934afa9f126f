"""Storms with programs that hang while their sessions live (F6, F16). The calls that wait for them must not grow
without end.

A program that hangs answers no callback and reads nothing. Its consumer's loop lives on, and repeats the program's last
report at each probe. Sooner or later the program goes on, or somebody ends it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from tests.sim.actors import ProductActor
from tests.sim.application import Application
from tests.sim.options import seeds
from tests.sim.scenarios import Scene
from tests.sim.script import ScriptWorld
from tests.sim.test_churn import KINDS, Churn

SEEDS = 30
HUNG_MS_MAX = 60_000
KINDS_HUNG = (*KINDS, "rules", "request", "probe", "hang", "hang", "hang")


class Reached(NamedTuple):
    """The result of a storm."""

    hung: int  # programs that hung
    stalled: int  # evictions because of probes
    overdue: int  # evictions because of commands that were not obeyed
    waiting_max: int  # the most calls that waited for one program


class Hung(Churn):
    """The acts of `Churn`, and programs that hang."""

    def __init__(self, world: ScriptWorld, scene: Scene) -> None:
        super().__init__(world, scene, KINDS_HUNG)
        self.hung = 0

    def probe(self) -> None:
        """An operator turns probes on."""
        policy = self.scene.record().get("policy", {})
        probes = {"probe_interval_ms": self._pick([1_000, 1_000, 3_000]), "max_probes": self._pick([2, 3])}
        self.scene.edit_record(policy={**policy, **probes})

    def hang(self) -> None:
        """A program hangs. It lags, and its consumer can only repeat its last report."""
        world = self.world
        names = [name for name in self._live("consumer") if self._application(name) is not None]
        if not names:
            return
        name = self._pick(names)
        application, actor = self._application(name), world.processes[name].actor
        assert application is not None
        assert isinstance(actor, ProductActor)
        self.hung += 1
        application.hang()
        actor.role.said = (world.now_ms, 7)
        end_ms = world.now_ms + int(world.rng.random() * HUNG_MS_MAX)
        if world.rng.random() < 0.5:
            world.at(end_ms, lambda: self.go_on(name, application))
        else:
            world.at(end_ms, lambda: self.end(name, application))

    def go_on(self, name: str, application: Application) -> None:
        """The program works again, if it is still the same one."""
        actor = self.world.processes[name].actor
        if application.hung and self._application(name, hung=True) is application and isinstance(actor, ProductActor):
            application.go_on()
            actor.role.said = None

    def end(self, name: str, application: Application) -> None:
        """Somebody ends the program, and it is started again."""
        if application.hung and self._application(name, hung=True) is application:
            self.world.crash(name)

    def all_go_on(self) -> None:
        """All programs work again."""
        for name in self.world.processes:
            application = self._application(name, hung=True)
            if application is not None:
                self.go_on(name, application)

    def _application(self, name: str, *, hung: bool = False) -> Application | None:
        """The application of a running consumer, if it hangs (`hung`) or does not; else None."""
        process = self.world.processes[name]
        application = process.application if process.running else None
        return application if isinstance(application, Application) and application.hung is hung else None


@cache
def hung(seed: int, steps: int = 2_500) -> Reached:
    """One seed of such a storm, and the calm after it."""
    world = ScriptWorld(seed, None)
    scene = Scene(world, consumers=4, rebalance_timeout_ms=[3_000, 8_000][seed % 2])
    churning = Hung(world, scene)
    waiting = 0
    for _ in range(steps // 80):
        world.storm(80)
        waiting = max(
            [waiting, *(p.application.waiting for p in world.processes.values() if p.application is not None)]
        )
        churning.act()
    churning.no_more_probes()
    churning.all_go_on()
    scene.calm()
    why = [told.fields["why"] for told in world.events("evicted")]
    stalled = sum(each.startswith("stalled") for each in why)
    return Reached(churning.hung, stalled, len(why) - stalled, waiting)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_with_programs_that_hang_ends_in_a_calm(seed: int) -> None:
    hung(seed)


def test_f06_storms_evict_who_is_stalled_and_who_does_not_obey() -> None:
    reached = [hung(seed) for seed in range(SEEDS)]
    assert sum(each.hung for each in reached) >= 3 * SEEDS
    assert sum(each.stalled > 0 for each in reached) >= SEEDS // 4
    assert sum(each.overdue > 0 for each in reached) >= 1
    assert max(each.waiting_max for each in reached) >= 3
