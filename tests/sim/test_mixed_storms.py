"""Storms of mixed groups that change their mode. There must be one reader, no lost offset, and rest in the calm.

The rules are those of groups of old members (`tests/sim/old_rules.py`): violations by old code are excused by name,
violations by our code never are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from random import Random

import pytest

from tests.sim.mixed_scene import ADOPTION, MixedScene
from tests.sim.old_rules import BEYOND_SESSION
from tests.sim.old_settings import PATIENCE
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import LEGACY

SEEDS = 40
STEPS = 6_000


@cache
def mixed_storm(seed: int) -> MixedScene:
    """One seed: old members and members of ours, with two coordinators or none, and a topic that grows."""
    drawn, habits = Random(f"mixed {int(seed)}"), Random(f"habits {int(seed)}")
    retries, backoff_ms = habits.choice(PATIENCE)
    adoption = replace(ADOPTION, retries=retries, backoff_ms=backoff_ms)
    coordinators = drawn.choice((0, 2))
    scene = MixedScene(seed, {"t": 6, "u": 3}, coordinators=coordinators, options=None, adoption=adoption)
    scene.all |= {TopicPartition("t", n) for n in range(8)}  # after it has grown
    told = {"topics": {"t": 1, "u": 1}, "retries": retries, "backoff_ms": backoff_ms}

    def start_old(name: str) -> None:
        scene.start(name, restarts=True, commit_interval_ms=drawn.choice((1_000, 5_000)), **told)

    storm_over(scene, drawn, STEPS, start_old, partial(scene.write_topic, "t", 8))
    return scene


def storm_over(
    scene: MixedScene, drawn: Random, steps: int, start_old: Callable[[str], object], *more: Callable[[], object]
) -> None:
    """A storm with two members of each kind. One of each kind joins, one of each kind leaves, and the actions of `more`
    happen. Then come the calm, a poke, and calm again."""
    world = scene.world
    for n in range(2):
        start_old(f"old{n}")
    scene.start_ours("consumer0", "consumer1")
    for action in (
        partial(start_old, "oldlate"),
        partial(scene.start_ours, "consumerlate"),
        partial(scene.ask_to_leave, "old0"),
        partial(scene.stop_ours, "consumer0"),
        *more,
    ):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    if drawn.random() < 0.5:  # the last old member leaves, and the group is coordinated at the end
        for name in ("old1", "oldlate"):
            world.at(world.now_ms + STORM_MS, partial(leave_if_there, scene, name))
    world.storm(steps)
    scene.calm()
    scene.poke()
    scene.calm()
    if wrong := unread(scene):
        world.fail(f"did not come to rest: {wrong}")


def unread(scene: MixedScene) -> list[str]:
    """The partitions that their owner does not read although somebody could read all. Partitions that wait for the end
    of an old member that forgot an owner node are left out."""
    anybody = scene.rules.registered
    served = scene.world.ensemble.stat(LEGACY.coordinator) is not None
    if not anybody or not (served or any("old" in consumer for consumer in anybody)):
        return []
    excused = scene.rules.behind_forgotten()
    owners = {p: claim.session.process for p, claim in scene.rules.claims.items()}
    readers = scene.readers()
    return [
        f"{p}: {readers.get(p)} reads what {owners.get(p)} has"
        for p in sorted(scene.all - excused)
        if not (owners.get(p) == readers.get(p) is not None)
    ]


def leave_if_there(scene: MixedScene, name: str) -> None:
    """An old member is asked to leave, if it was started."""
    if name in scene.world.processes:
        scene.ask_to_leave(name)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_mixed_storm_keeps_one_reader_and_comes_to_rest_with_everything_read(seed: int) -> None:
    mixed_storm(seed)


def test_such_storms_see_all_modes_and_what_old_members_do_against_the_rules() -> None:
    """Otherwise the test above would prove nothing: groups must end coordinated and mixed, and claims must be lost to
    others."""
    modes, events = Counter[Mode | None](), Counter[str]()
    for seed in range(SEEDS):
        scene = mixed_storm(seed)
        modes[scene.mode()] += 1
        events.update(told.name for told in scene.world.told)
        events += scene.rules.excused
    assert {Mode.COORDINATED, Mode.MIXED} <= modes.keys()
    assert events.keys() >= {
        "start_refused",
        "fetch_stopped",
        "start_sent",
        "mode_changed",
        BEYOND_SESSION,
    }
