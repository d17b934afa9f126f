"""Storms of the layout legacy, where owners are claims. A stranger deletes claims and makes claims, as old consumers
do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from tests.sim.options import seeds
from tests.sim.scenarios import Scene
from tests.sim.test_churn import LIFE
from tests.sim.test_flapping import Flapping
from tests.sim.world import World
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode

SEEDS = 30
KINDS = (*LIFE, *6 * ("steal",), "hang")
STOLEN_MS_MAX = 8_000
STRANGER = b"g_stranger-1416335000123-1a2b3c4d-0"


class Thefts(Flapping):
    """The acts of `Flapping`, and thefts of claims."""

    def __init__(self, world: World, scene: Scene, kinds: Sequence[str]) -> None:
        super().__init__(world, scene, kinds)
        self.stolen = self.kept = 0

    def steal(self) -> None:
        """Somebody deletes a claim unconditionally, and perhaps makes a claim of its own for a while."""
        group, partition = self._pick(sorted(self.scene.field.owners)) if self.scene.field.owners else ("", None)
        if partition is None:
            return
        path, rng = LEGACY.owner(group, partition), self.world.rng
        self.world.ensemble.operate(DeleteNode(path, ANY_VERSION))
        self.stolen += 1
        if rng.random() < 0.5:
            self.keep(path)
        elif rng.random() < 0.5:
            self.world.at(self.world.now_ms + int(rng.random() * 100), lambda: self.keep(path))

    def keep(self, path: str) -> None:
        """A stranger claims the partition, if it can, and goes away later."""
        if not self.world.ensemble.operate(CreateNode(path, STRANGER)).reason:
            self.kept += 1
            later_ms = self.world.now_ms + int(self.world.rng.random() * STOLEN_MS_MAX)
            self.world.at(later_ms, lambda: self.world.ensemble.operate(DeleteNode(path, 0)))


@cache
def claiming(seed: int, steps: int = 4_000) -> Thefts:
    """One seed of such a storm, and the calm after it."""
    world = World(seed)
    world.layout = LEGACY
    world.options = replace(world.options, session_timeout_ms=6_000)
    hold_ms = [0, 0, 2_000, 20_000][seed % 4]
    scene = Scene(world, consumers=5, rebalance_timeout_ms=[3_000, 8_000][seed % 2], hold_ms=hold_ms)
    thefts = Thefts(world, scene, KINDS)
    if seed % 2:  # otherwise the storm begins with the first joins
        scene.share()
    for _ in range(steps // 80):
        world.storm(80)
        thefts.act()
    thefts.no_more_probes()
    scene.calm()
    return thefts


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_over_claims_ends_in_a_calm(seed: int) -> None:
    claiming(seed)


def test_storms_over_claims_delete_some_and_claim_some_for_strangers() -> None:
    reached = [claiming(seed) for seed in range(1, 8, 2)]
    assert all(thefts.stolen >= 3 for thefts in reached)
    assert sum(thefts.kept for thefts in reached) >= 10
