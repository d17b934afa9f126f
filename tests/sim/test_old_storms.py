"""Storms of groups of old members alone. Whatever happens, they do only what the real ones do, and a poke mends the
group.

Their violations of the rules of one reader and of offsets are counted by name (`tests/sim/old_rules.py`). The storms of
mixed groups rely on this.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from random import Random
from typing import NamedTuple

import pytest

from tests.sim.old_rules import EQUAL_DATA, EXCEPTIONS
from tests.sim.old_scene import OldScene
from tests.sim.old_settings import VERSIONS
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.script import ScriptWorld
from tests.sim.sweep import fingerprints
from zkcoord.core.model import TopicPartition
from zkcoord.legacy.planning import RANGE, ROUND_ROBIN

SEEDS = 70
TOPICS = {"t": 6, "u": 3}
ALL = dict.fromkeys(TOPICS, 1)
STEPS = 6_000


class Reached(NamedTuple):
    """The result of a storm of old members, and the scene after its end."""

    scene: OldScene
    left_over: dict[TopicPartition, str]  # partitions that were unsettled before the poke
    gave_up: int


@cache
def old_storm(seed: int) -> Reached:
    """One seed: three old members in a storm (of one version, or of any versions if all use range). One joins, one
    leaves, a topic grows, brokers go and come. Then come the calm, a poke, and calm again."""
    drawn = Random(f"old {int(seed)}")
    world = ScriptWorld(seed, None)
    scene = OldScene(world, TOPICS)
    strategy, one = drawn.choice((RANGE, RANGE, ROUND_ROBIN)), drawn.choice(VERSIONS)

    def start(name: str) -> None:
        scene.start(
            name,
            restarts=True,
            version=one if strategy == ROUND_ROBIN else drawn.choice(VERSIONS),
            topics=ALL,
            strategy=strategy,
            commit_interval_ms=drawn.choice((1_000, 5_000)),
            auto_commit=drawn.random() < 0.9,
        )

    for n in range(3):
        start(f"old{n}")
    if seed % 2:
        scene.settle()
    away_ms = world.now_ms + int(drawn.random() * STORM_MS)
    world.at(away_ms, scene.stop_broker)
    world.at(away_ms + int(drawn.random() * 5_000), scene.start_broker)
    for action in (
        partial(start, "oldlate"),
        partial(scene.ask_to_leave, "old0"),
        partial(scene.write_topic, "t", TOPICS["t"] + 2),
        partial(scene.write_topic, "u", TOPICS["u"]),
    ):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    world.storm(STEPS)
    scene.calm()
    left_over = scene.rules.unsettled()
    scene.poke()
    scene.calm()
    excused = scene.rules.behind_forgotten()
    if wrong := {p: why for p, why in scene.rules.unsettled().items() if p not in excused}:
        world.fail(f"did not come to rest: {wrong}")
    return Reached(scene, left_over, len([entry for entry in world.journal if entry.event == "gave up"]))


def old_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """Values by which two runs of one seed are compared."""
    return old_storm(seed).scene.world.random_fingerprint()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_poke_heals_whatever_a_storm_left_of_a_group_of_old_members(seed: int) -> None:
    old_storm(seed)


def test_such_storms_see_all_that_old_members_do_against_the_rules_and_what_they_leave() -> None:
    """Otherwise the test above would prove nothing: each exception must occur, members must give up, and partitions
    must stay unread."""
    excused, left = Counter[str](), Counter[str]()
    for seed in range(SEEDS):
        reached = old_storm(seed)
        excused += reached.scene.rules.excused
        left.update(why.split(" ", 1)[1] for why in reached.left_over.values())
    assert excused.keys() == set(EXCEPTIONS) - {EQUAL_DATA}  # no session makes a node under another member's name
    assert {"gave up", "does not notice that its owner node is gone"} <= left.keys()


def test_a_seed_of_old_members_is_the_same_world_under_every_hash_seed() -> None:
    by_hash_seed = fingerprints("tests.sim.test_old_storms:old_fingerprint", range(5))
    assert len({tuple(prints) for prints in by_hash_seed.values()}) == 1, by_hash_seed
