"""Storms in which links break again and again, while programs that obey nothing read on and are evicted (F55, F56).

Members have a short time to answer, and get no second one. So evictions, reconnections and breaks come together.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from tests.sim import faults
from tests.sim.options import Options, seeds
from tests.sim.scenarios import Scene
from tests.sim.script import ScriptWorld
from tests.sim.test_churn import Churn
from tests.sim.zookeeper import Txn
from zkcoord.tree.paths import DRAFT, LEGACY, Layout

SEEDS = 30
KINDS = ("join", "leave", "grow", "hang", "hang", "swap_coordinator")
FAULTS = {"flap": 3, "hang": 1, "black_hole": 2, "pause": 1}
HUNG_MS_MAX = 40_000


FLAPS_MAX = 60  # breaks of one link after an eviction


class Reached(NamedTuple):
    """The result of a storm."""

    evicted: int
    left_a_server: int  # consumers and coordinators that left a silent server
    lost: int  # leases that ended while a partition was read


class Flapping(Churn):
    """The acts of `Churn`, and programs that obey nothing any more and read on for long."""

    def hang(self) -> None:
        """A program that holds a partition hangs."""
        world = self.world
        holding = {held.client for held in self.scene.field.holdings.values()}
        names = [name for name in self._live("consumer") if world.processes[name].client in holding]
        process = world.processes[self._pick(names)] if names else None
        if process is not None and process.running and not process.application.hung:
            process.application.hang(reads_on=True)
            world.at(world.now_ms + int(world.rng.random() * HUNG_MS_MAX), lambda: faults.go_on(process))


def break_at_evictions(world: ScriptWorld) -> None:
    """During the storm the link of most evicted consumers breaks at their eviction, and then again and again."""
    rng = Random(f"evictions {world.seed}")

    def applied(txn: Txn) -> None:
        gone = [
            c.before.stat.ephemeral_owner for c in txn.changes if c.after is None and c.before and "/ids/" in c.path
        ]
        for store in world.stores if gone and txn.kind == "multi" and world.stormy else ():
            if store.session is not None and store.session.id in gone and rng.random() < 0.8:
                answers = rng.choice((1, 1, 2))
                store.break_wire("it is evicted")
                store.flaps = deque([answers] * int(rng.random() * FLAPS_MAX))

    world.ensemble.on_applied.append(applied)


@cache
def flapping(seed: int, steps: int = 4_000, layout: Layout = DRAFT) -> Reached:
    """One seed of such a storm, and the calm after it."""
    options = Options.drawn(
        Random(f"flapping {seed}"),
        faults=FAULTS,
        fault_rate=0.005,
        reconnect_ms_max=500,
        read_ms_max=300,
        time_step_ms_max=50,
    )
    world = ScriptWorld(seed, options)
    world.layout = layout
    scene = Scene(world, consumers=4, rebalance_timeout_ms=2_000)
    break_at_evictions(world)
    churning = Flapping(world, scene, KINDS)
    world.run_until(lambda: bool(scene.record()), what="the group's record")
    scene.edit_record(policy={**scene.record().get("policy", {}), "max_rebalance_retries": 0})
    world.run_for(3_000)
    for _ in range(steps // 200):
        world.storm(200)
        churning.act()
    scene.calm()
    return Reached(*(len(world.events(name)) for name in ("evicted", "server_left", "fetch_lost")))


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_flapping_links_ends_in_a_calm(seed: int) -> None:
    flapping(seed)


@pytest.mark.parametrize("seed", seeds(SEEDS // 2))
def test_a_storm_of_flapping_links_over_claims_ends_in_a_calm(seed: int) -> None:
    claims_flapping(seed)


def claims_flapping(seed: int) -> Reached:
    """The same in the layout legacy."""
    return flapping(seed, layout=LEGACY)


def test_f55_f56_storms_evict_whoever_reads_on_and_have_silent_servers_left() -> None:
    reached = [flapping(seed) for seed in range(SEEDS)]
    assert sum(each.evicted > 0 for each in reached) >= SEEDS // 2
    assert sum(each.left_a_server > 0 for each in reached) >= SEEDS // 4
    assert sum(each.lost > 0 for each in reached) >= SEEDS // 4
