"""Storms in which people reset a group's offsets, while others move it between the stores."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from tests.sim.offset_log import LogFaults
from tests.sim.options import seeds
from tests.sim.reset_tool import ResetTool, Rewinds, resets_at_work
from tests.sim.scenarios import STORM_MS
from tests.sim.script import Script, on_seeds
from tests.sim.store_scene import STORES, STORM_STEPS, StoreScene, begin_in
from tests.sim.store_tool import StoreTool, tools_at_work
from zkcoord.offsets.targets import Goal, Where
from zkcoord.operating.store_migration import Stage

SEEDS = 8
TOOL_STEPS = 60_000
TRIES = 5
"""Of the last reset, since a tool that moves the group may still be on its way, and write the same record."""


class Reached(NamedTuple):
    """The result of a storm."""

    scene: StoreScene
    runs: list[ResetTool]
    rewinds: Rewinds


@cache
def resetting_storm(seed: int) -> Reached:
    """Coordinators, consumers and tools of both kinds die; Kafka answers late, in part or not at all; strangers commit.

    At the end one run of each tool ends, and the group goes on.
    """
    drawn = Random(f"resets {int(seed)}")
    scene = begin_in(seed, drawn.choice(STORES), None, topics={"t": 6})
    world, rewinds = scene.world, Rewinds(scene)
    scene.log.faults = LogFaults.drawn(seed)
    until_ms = world.now_ms + STORM_MS
    scene.log.trouble(world.now_ms, until_ms, scene.partitions())
    tools_at_work(scene, drawn, until_ms)
    runs = resets_at_work(scene, rewinds, drawn, until_ms)
    for action in (lambda: scene.join("late"), lambda: Script.leave(scene, "consumer0")):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    world.storm(STORM_STEPS)
    world.run_until(lambda: world.now_ms >= until_ms and all(run.over for run in runs), TOOL_STEPS, "all are over")
    for n in range(TRIES):
        runs.append(ResetTool(scene, rewinds, Goal(Where.OFFSET, drawn.randint(0, 900)), f"last{n}"))
        if runs[-1].finish(TOOL_STEPS) is not None:
            break
    assert runs[-1].found is not None, runs[-1].why
    scene.resume()
    scene.calm()
    goal = drawn.choice(STORES)
    moved = StoreTool(scene, goal, "last").finish(TOOL_STEPS)
    assert moved is not None
    assert (moved.stage, moved.store) == (Stage.DONE, goal)
    scene.calm()
    return Reached(scene, runs, rewinds)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_in_which_offsets_are_reset_goes_on_where_the_resets_say(seed: int) -> None:
    resetting_storm(seed)


def test_storms_reach_finished_dead_and_taken_over_resets_and_later_readings() -> None:
    reached = [resetting_storm(seed) for seed in range(SEEDS)]
    runs = [run for each in reached for run in each.runs]
    assert sum(run.found is not None for run in runs) > 2 * SEEDS
    assert sum(run.died for run in runs) > SEEDS
    assert sum(run.found is not None and run.took_over for run in runs) > 0
    assert {run.where for run in runs if run.found is not None} >= {Where.OFFSET, Where.FILE, Where.EARLIEST}
    assert sum(each.rewinds.read for each in reached) > 6 * SEEDS


@pytest.mark.parametrize("store", STORES)
@on_seeds()
def test_f241_a_reset_counts_over_what_another_program_committed_to_kafka_before_it(store: str, seed: int) -> None:
    """While nobody reads, a person sets the group back with Kafka's own tool, and then forward with ours."""
    scene = begin_in(seed, store, topics={"t": 4}, hold_ms=0)
    world, rewinds = scene.world, Rewinds(scene)
    world.run_for(5_000)
    scene.request("pause")
    world.run_until(lambda: scene.answered("pause"), what="nobody reads")
    for partition in scene.partitions():
        scene.log.stranger_commits(partition, 100)
    found = ResetTool(scene, rewinds, Goal(Where.OFFSET, 250), "r1").finish()
    assert found is not None
    assert set(found.offsets.values()) == {250}
    scene.resume()
    world.run_until(lambda: not rewinds.expected, what="all are read on")
    scene.calm()
    assert [scene.journal("foreign_offset"), len(rewinds.expected)] == [[], 0]
    assert {entry.start for entry in scene.journal("start") if entry.start in (100, 250)} == {250}
