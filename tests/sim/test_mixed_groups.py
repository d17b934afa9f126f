"""Mixed groups: consumers of ours follow the plan of the old ones beside them, with a coordinator and without."""

from __future__ import annotations

import pytest

from tests.sim.mixed_scene import MixedScene
from tests.sim.script import seeds
from zkcoord.core.mode import Mode


@pytest.mark.parametrize("coordinators", [0, 1])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_consumer_of_ours_joins_old_ones_and_leaves_them_and_all_is_read_by_one_each_time(
    seed: int, coordinators: int
) -> None:
    scene = MixedScene(seed, coordinators=coordinators)
    scene.start("old0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    scene.start_ours("consumer1")
    scene.await_shared("consumer0", "consumer1", "old0")
    scene.stop_ours("consumer0")
    scene.await_shared("consumer1", "old0")
    assert scene.commands() == 0


@pytest.mark.parametrize("seed", seeds(10))
def test_an_old_one_joins_a_coordinated_group_at_its_first_tries_and_leaves_it_coordinated(seed: int) -> None:
    scene = MixedScene(seed)
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")
    scene.start("old0")
    scene.await_shared("consumer0", "consumer1", "old0")
    assert not scene.member("old0").gave_up
    scene.world.run_until(lambda: scene.mode() is Mode.MIXED, what="the mode is noted")
    scene.leave("old0")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="the mode is noted")
