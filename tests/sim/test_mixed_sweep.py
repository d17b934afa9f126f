"""Crash-point sweep beside old members: each role of ours dies at each of its writes, and loses the reply of each.

Old members run undisturbed: their deaths are tested in the storms. An old member that joins while a dead consumer's
claims still exist gives up, as old code does. It is poked once, and then everything must be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.sim.actors import GROUP
from tests.sim.adoption_tool import NotAdopted, adopt, again_if_it_dies, left_of_ours, release_while
from tests.sim.batches import BatchApplication, Sink
from tests.sim.mixed_scene import ADOPTION, MixedScene
from tests.sim.moments import SimulationError
from tests.sim.script import ScriptWorld
from tests.sim.store_tool import ToolTree
from tests.sim.sweep import KILLS, LOSSES, crash_points
from tests.sim.sweep_scene import BUDGET_MS, OPTIONS
from tests.sim.test_mixed_storms import unread
from tests.sim.world import Entry, World
from zkcoord.core.mode import Mode
from zkcoord.operating.adopting import ADOPTED, UNCHANGED, Result
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import CreateNode

SMALL = {"t": 3}
CONSUMERS = ("consumer0", "consumer1")
POINTS_MIN = 5 * len(KILLS + LOSSES)


def scene_of(world: World, coordinators: int = 1, **settings: object) -> MixedScene:
    """A mixed group on this world."""
    assert isinstance(world, ScriptWorld)
    return MixedScene(0, world=world, coordinators=coordinators, **{"topics": SMALL, **settings})  # type: ignore[arg-type]


def come_to(scene: MixedScene, *names: str) -> None:
    """Run until these members own everything by their claims."""

    def given_up() -> bool:
        return any(scene.member(name).gave_up for name in names if name.startswith("old"))

    scene.world.run_until(lambda: scene.shared(*names) or given_up(), what=f"shared by {', '.join(names)}")
    if not scene.shared(*names):
        scene.poke()
        scene.await_shared(*names)


def at_rest(scene: MixedScene) -> None:
    """Everything comes to rest, and soon: a crash costs no more than the time-outs that detect it."""
    began_ms = scene.world.now_ms
    scene.calm()
    assert scene.world.now_ms - began_ms <= BUDGET_MS
    assert unread(scene) == []
    assert not +scene.rules.excused
    assert scene.standing() == []


def coordinated(scene: MixedScene) -> None:
    """Two consumers of ours are the group's only members."""
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")


def ours_joins(world: World, coordinators: int) -> None:
    """A consumer of ours joins an old member."""
    scene = scene_of(world, coordinators)
    scene.start("old0")
    come_to(scene, "old0")
    scene.start_ours("consumer0")
    come_to(scene, "old0", "consumer0")
    at_rest(scene)


def old_joins(world: World, coordinators: int) -> None:
    """An old member joins a coordinated group, whose coordinator may be gone by then."""
    scene = scene_of(world)
    coordinated(scene)
    if not coordinators:
        scene.end("coordinator0")
    scene.start("old0")
    come_to(scene, "old0", "consumer0", "consumer1")
    at_rest(scene)


def last_old_leaves(world: World, coordinators: int) -> None:
    """The last old member leaves two consumers of ours. Without a coordinator, nobody reads its partitions until there
    is one."""
    scene = scene_of(world, coordinators)
    scene.start("old0")
    scene.start_ours("consumer0", "consumer1")
    come_to(scene, "old0", "consumer0", "consumer1")
    scene.leave("old0")
    if not coordinators:
        scene.world.run_for(5_000)
        assert set(scene.readers().values()) <= {"consumer0", "consumer1"}
        scene.start_coordinator()
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="the mode is noted")
    at_rest(scene)


def ours_leaves(world: World, coordinators: int) -> None:
    """A consumer of ours leaves another one and an old member."""
    scene = scene_of(world, coordinators)
    scene.start("old0")
    scene.start_ours("consumer0", "consumer1")
    come_to(scene, "old0", "consumer0", "consumer1")
    scene.stop_ours("consumer0")
    come_to(scene, "old0", "consumer1")
    at_rest(scene)


class OursAlone(Sink):
    """A sink of the ranges of topic `t`, which only consumers of ours process."""

    def _take(self, entry: Entry) -> None:
        if entry.partition.topic == "t" and not entry.process.startswith("old"):
            super()._take(entry)


def announced(world: World, coordinators: int) -> None:
    """A consumer of ours dies in a batch that it has announced. Another one repeats the batch as it was, beside an old
    member."""
    scene = scene_of(world, coordinators, topics={"t": 2, "u": 3})
    scene.ours.announce(BatchApplication)
    world.rest_checks.append(OursAlone(world, lambda group, topic: 0).complete)
    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0", "consumer1")
    come_to(scene, "old0", "consumer0", "consumer1")
    world.run_until(lambda: _in_a_batch(scene, "consumer0"), what="a batch of which something is processed")
    scene.end("consumer0")
    come_to(scene, "old0", "consumer1")
    world.run_for(5_000)
    at_rest(scene)


def _in_a_batch(scene: MixedScene, name: str) -> bool:
    process = scene.world.processes[name]
    working = process.application
    if not isinstance(working, BatchApplication) or working._act != working._work:
        return False
    return any(partition.topic == "t" for partition in working._processed)


def adopted(world: World, coordinators: int, dies_at: int | None = None, behind: bool = False) -> bool:
    """The real tool adopts a group with an old member, while a consumer of ours waits for the adoption. True if the
    tool died."""
    scene = scene_of(world, coordinators, adoption=None)
    guard = NotAdopted(scene)
    scene.start("old0", commit_interval_ms=1_000)
    come_to(scene, "old0")
    world.run_until(lambda: all(scene.offset(p) for p in scene.all), what="it has committed: else the tool refuses")
    scene.start_ours("consumer0")
    world.run_until(lambda: bool(scene.world.events("waiting")), what="ours waits")
    results = list[Result]()

    def run(tree: ToolTree) -> None:
        results.append(adopt(tree, ADOPTION))

    died = again_if_it_dies(scene, run, dies_at, behind)
    assert results[-1].result == (UNCHANGED if died and behind else ADOPTED)
    come_to(scene, "old0", "consumer0")
    assert guard.reopened == 1
    at_rest(scene)
    return died


def released(world: World, coordinators: int, dies_at: int | None = None, behind: bool = False) -> bool:
    """The real tool releases a group of an old member and a consumer of ours, which is asked to leave. True if the tool
    died."""
    scene = scene_of(world, coordinators)
    guard = NotAdopted(scene)
    scene.start("old0")
    scene.start_ours("consumer0")
    come_to(scene, "old0", "consumer0")

    def leaves(there: object) -> None:
        if world.processes["consumer0"].restarts:
            scene.stop_ours("consumer0")

    died = again_if_it_dies(scene, lambda tree: release_while(scene, tree, leaves), dies_at, behind)
    assert left_of_ours(scene) == []
    assert guard.closed == 1
    come_to(scene, "old0")
    scene.start_ours("consumer1")  # it waits until the group is adopted
    world.run_for(5_000)
    assert left_of_ours(scene) == []
    at_rest(scene)
    return died


PLAYED: Mapping[str, Callable[[World], object]] = {
    f"{name}{'' if coordinators else '-alone'}": partial(scene, coordinators=coordinators)
    for name, scene in {
        "ours-joins": ours_joins,
        "old-joins": old_joins,
        "last-old-leaves": last_old_leaves,
        "ours-leaves": ours_leaves,
        "announced": announced,
        "adopted": adopted,
        "released": released,
    }.items()
    for coordinators in (1, 0)
}
SHORT = ("ours-joins", "ours-joins-alone", "released")


def points(name: str) -> int:
    """Play the scene, cut off at each write of our roles. Returns the number of crash points."""
    swept = CONSUMERS if name.endswith("-alone") else ("coordinator0", *CONSUMERS)
    return len(crash_points(PLAYED[name], 0, OPTIONS, processes=swept, make=ScriptWorld))


@pytest.mark.parametrize("name", SHORT)
def test_all_is_read_again_after_any_death_or_lost_reply_of_ours(name: str) -> None:
    assert points(name) >= POINTS_MIN


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PLAYED if name not in SHORT])
def test_any_death_or_lost_reply_of_ours_breaks_no_scene(name: str) -> None:
    assert points(name) >= POINTS_MIN


@pytest.mark.parametrize("name", PLAYED)
def test_the_scene_itself_comes_to_rest(name: str) -> None:
    PLAYED[name](ScriptWorld(0, OPTIONS))


@pytest.mark.parametrize("coordinators", [0, 1])
@pytest.mark.parametrize("tool", [adopted, released])
def test_a_tool_that_died_before_or_behind_any_of_its_writes_is_run_again(
    tool: Callable[..., bool], coordinators: int
) -> None:
    for behind in (False, True):
        dies_at = 1
        while tool(ScriptWorld(0, OPTIONS), coordinators, dies_at, behind):
            dies_at += 1
        assert dies_at > 1


def test_a_write_of_ours_in_a_group_that_is_not_adopted_is_complained_of() -> None:
    scene = scene_of(ScriptWorld(0, OPTIONS), adoption=None)
    NotAdopted(scene)
    scene.start_ours("consumer0")
    scene.world.run_until(lambda: bool(scene.world.events("waiting")), what="ours waits")
    session = scene.world.processes["consumer0"].stores[0].session
    assert session is not None
    with pytest.raises(SimulationError, match="of a group that is not adopted"):
        scene.world.ensemble.submit(session, (CreateNode(f"{LEGACY.ids(GROUP)}/{GROUP}_h-1-z0000000"),))
