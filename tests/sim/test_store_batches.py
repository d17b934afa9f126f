"""Announced ranges in groups with offsets in Kafka: the receiver compares the ranges with the offset that counts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.sim.offset_log import LogFaults
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.script import Script, on_seeds
from tests.sim.store_scene import STORM_STEPS, StoreScene, begin_in
from tests.sim.test_failures_offsets import P0, holder, kill, reads_on


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_a_sink_is_exact_in_a_storm_whatever_store_its_offsets_are_in(seed: int, store: str) -> None:
    """Every program may die anywhere. No stranger commits and Kafka loses nothing, since both would lead to other
    ranges."""
    drawn = Random(f"batches {int(seed)}")
    scene = begin_in(seed, store, None, topics={"t": 5}, hold_ms=drawn.choice((0, 8_000)), batches=True)
    world = scene.world
    scene.log.faults = replace(LogFaults.drawn(seed), strangers=0, expiries=0)
    scene.log.trouble(world.now_ms, world.now_ms + STORM_MS, scene.partitions())
    for action in (lambda: scene.join("late"), lambda: Script.leave(scene, "consumer0")):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    world.storm(STORM_STEPS)
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_a_range_of_a_dead_consumer_is_handed_on_from_the_offset_that_counts(seed: int, store: str) -> None:
    scene: StoreScene = begin_in(seed, store, topics={"t": 4}, batches=True)
    world = scene.world
    reads_on(scene)
    before = len(world.events("announced"))
    world.run_until(lambda: len(world.events("announced")) > before + 3, what="ranges are announced")
    kill(scene, holder(scene, P0))
    scene.settle()
    reads_on(scene)
    scene.calm()
