"""Storms over a group that people move to another tree and back, from any store."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from tests.sim.move_tool import AWAY, BACK, MoveTool, TwoTrees, movers_at_work
from tests.sim.offset_log import LogFaults
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.script import Script
from tests.sim.store_scene import STORES, STORM_STEPS, begin_in

SEEDS = 6


@cache
def moving_storm(seed: int) -> tuple[TwoTrees, list[MoveTool]]:
    """One seed: consumers, coordinators and tools die during moves. In the end the last run moves the group to its
    goal."""
    drawn = Random(f"moves {int(seed)}")
    scene = begin_in(seed, drawn.choice(STORES), None, topics={"t": 6}, hold_ms=drawn.choice((0, 0, 8_000)))
    world = scene.world
    trees = TwoTrees(scene, drawn)
    scene.log.faults = LogFaults.drawn(seed)
    scene.log.trouble(world.now_ms, world.now_ms + STORM_MS, scene.partitions())
    runs = movers_at_work(trees, drawn, world.now_ms + STORM_MS)
    for action in (lambda: scene.join("late"), lambda: Script.leave(scene, "consumer0")):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    world.storm(STORM_STEPS)
    scene.calm()
    ways = (AWAY, BACK) if drawn.random() < 0.7 else (BACK, AWAY)
    last = [MoveTool(trees, way, f"last {way}").finish(60_000) for way in ways]  # the first ends a move that was begun
    scene.calm()
    here = ways[-1] == BACK
    assert (trees.is_here, trees.is_there) == (here, not here), last
    assert bool(scene.held()) is here
    return trees, runs


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_group_that_is_moved_to_and_fro_in_a_storm_is_never_read_in_both_trees(seed: int) -> None:
    moving_storm(seed)


def test_storms_of_moves_reach_both_trees_and_tools_that_die() -> None:
    reached = [moving_storm(seed) for seed in range(SEEDS)]
    results = [run.result for _, runs in reached for run in runs]
    assert {"died", "moved", "was moved already"} <= set(results)
    assert sum(trees.trips for trees, _ in reached) >= SEEDS
    assert sum(trees.copies_removed for trees, _ in reached) > 0
