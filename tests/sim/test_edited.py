"""Storms in which somebody edits owners by hand while the partitions' readers are moved, die, hang and lose links
(F98)."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from tests.sim.checkers import OPERATOR
from tests.sim.field import consumer_of
from tests.sim.options import Options, seeds
from tests.sim.places import OWNER, place_of
from tests.sim.scenarios import Scene
from tests.sim.script import ScriptWorld
from tests.sim.test_churn import Churn
from tests.sim.zookeeper import Txn

SEEDS = 30
FAULTS = {"owner": 4, "crash": 1, "disconnect": 1, "pause": 1, "hang": 1}
KINDS = ("join", "leave", "swap_coordinator", "request", "nothing", "nothing")


class Reached(NamedTuple):
    """The result of a storm."""

    taken: int  # edited owners that named a member
    given: int  # ... that were granted again while that member was registered


class Edited(Churn):
    """The acts of `Churn`, and one that does nothing."""

    def nothing(self) -> None:
        """Do nothing, so that owners of a settled group are edited, too."""


@cache
def edited(seed: int, steps: int = 2_500) -> Reached:
    """One seed of such a storm, and the calm after it. In every other seed nobody requests a rebalance."""
    rates = Options.drawn(Random(f"edited {seed}"), faults=FAULTS, fault_rate=0.01)
    world = ScriptWorld(seed, rates)
    scene = Scene(world, consumers=3)
    field, edits, given = scene.field, dict[str, str](), list[bool]()

    def applied(txn: Txn) -> None:
        for change in txn.changes:
            place = place_of(change.path)
            if place is None or place.kind != OWNER:
                continue
            before, after = ("" if each is None else each.data.decode() for each in (change.before, change.after))
            if txn.session.process == OPERATOR and (place.group, consumer_of(before)) in field.registrations:
                edits[change.path] = consumer_of(before)
            elif (reader := edits.get(change.path)) and after and txn.session.process != OPERATOR:
                given.append((place.group, reader) in field.registrations)
                del edits[change.path]

    world.ensemble.on_applied.append(applied)
    scene.share()
    churning = Edited(world, scene, KINDS)
    for _ in range(steps // 100):
        world.storm(100)
        churning.act()
    scene.resume()
    if seed % 2:
        scene.request("rebalance")
    scene.calm()
    return Reached(len(given) + len(edits), sum(given))


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_in_which_owners_are_edited_ends_in_a_calm(seed: int) -> None:
    edited(seed)


def test_f98_storms_edit_owners_under_readers_that_are_alive() -> None:
    reached = [edited(seed) for seed in range(SEEDS)]
    assert sum(each.taken for each in reached) >= 3 * SEEDS
    assert sum(each.given for each in reached) >= SEEDS
