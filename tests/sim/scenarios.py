"""Scenes that several tests play: a group of real loops on a world."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim import checkers
from tests.sim.actors import ConsumerFactory, coordinator, make_topics
from tests.sim.application import Logs
from tests.sim.field import Field
from tests.sim.options import Options
from tests.sim.world import World

TOPICS = {"t": 8, "u": 3}
CALM_STEPS = 60_000


class Scene:
    """A world with topics, coordinators and consumers of one group, every invariant checked from the start."""

    def __init__(
        self,
        world: World,
        *,
        coordinators: int = 2,
        consumers: int = 3,
        topics: Mapping[str, int] = TOPICS,
        rebalance_timeout_ms: int = 8_000,
    ) -> None:
        self.world = world
        self.field: Field = checkers.watch(world)
        self.world.reads_disturb = False
        make_topics(world, topics)
        self.logs = Logs(world)
        self.consumers = ConsumerFactory(self.logs, dict.fromkeys(topics, 1), rebalance_timeout_ms=rebalance_timeout_ms)
        for n in range(coordinators):
            world.spawn(f"coordinator{n}", coordinator)
        for n in range(consumers):
            self.join(f"consumer{n}")

    def join(self, name: str) -> None:
        """One more consumer starts."""
        self.world.spawn(name, self.consumers)

    def calm(self) -> None:
        """No more faults; everything must come to rest."""
        self.world.calm(CALM_STEPS)


def storm(seed: int, options: Options | None = None, *, steps: int = 1_500) -> World:
    """One seed: two coordinators and three consumers in a storm, then the calm; returns the world at rest."""
    world = World(seed, options)
    scene = Scene(world)
    world.storm(steps)
    scene.calm()
    return world


def storm_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """What tells two runs of one seed apart: randomness, every write, steps and time."""
    return storm(seed).random_fingerprint()
