"""The crash-point sweep itself, on the toy actor: it is complete, equals a play from the start, and names the failing
point."""

from __future__ import annotations

import os

import pytest

from tests.sim.options import Options
from tests.sim.sweep import KILLS, CrashPointError, crash_points, play_again
from tests.sim.toy import GOAL, PATH, Counter
from tests.sim.world import CrashPlan, World

SWEPT = 4  # a seed in which both counters write, alternately
NEAR_STEPS = 400  # some of the seed's writes come within this many steps, and others do not


def counters(world: World) -> None:
    world.ensemble.ensure(PATH, b"0")
    for n in range(2):
        world.spawn(f"counter-{n}", Counter)
    world.calm(5_000, quiet_ms=3_000)
    assert int(world.ensemble.data(PATH) or b"0") == GOAL


def test_a_crash_sweep_visits_every_write_at_every_moment() -> None:
    undisturbed = World(SWEPT, Options())
    counters(undisturbed)
    counts = undisturbed.write_counts
    assert min(counts["counter-0"], counts["counter-1"]) >= GOAL // 2
    writes = [(name, n) for name in ("counter-0", "counter-1") for n in range(1, counts[name] + 1)]
    points = crash_points(counters, SWEPT, moments=KILLS)
    assert [point.plan for point in points] == [CrashPlan(*write, when) for write in writes for when in KILLS]
    of_one = crash_points(counters, SWEPT, processes=["counter-1"], moments=KILLS)
    assert of_one == [point for point in points if point.plan.process == "counter-1"]


def test_a_crash_point_that_was_forked_is_the_world_that_is_played_again_from_its_start() -> None:
    points = crash_points(counters, SWEPT, near_steps=0)
    assert len({point.fingerprint for point in points}) > len(points) // 2
    for point in points[::7]:
        assert play_again(counters, point.plan, SWEPT) == point


def test_a_replayed_near_crash_point_equals_the_forked_one() -> None:
    forked, some_again = (
        crash_points(counters, SWEPT, processes=["counter-1"], near_steps=near) for near in (0, NEAR_STEPS)
    )
    assert some_again == forked


def never_dies(world: World) -> None:
    """Fails when counter-1 has died."""
    counters(world)
    if world.processes["counter-1"].incarnation > 1:
        world.fail("it has died")


def vanishes(world: World) -> None:
    """Its process ends without an answer when counter-0 has died."""
    counters(world)
    if world.processes["counter-0"].incarnation > 1:
        os._exit(7)


@pytest.mark.parametrize("near_steps", [0, NEAR_STEPS])
def test_a_scenario_that_fails_at_a_crash_point_says_at_which_and_why(near_steps: int) -> None:
    told = r"(?s)SimulationError: it has died\n.*at the crash point CrashPlan\(process='counter-1', at_write="
    with pytest.raises(CrashPointError, match=told):
        crash_points(never_dies, SWEPT, near_steps=near_steps)


def test_a_scenario_whose_process_ends_at_a_crash_point_says_at_which() -> None:
    with pytest.raises(
        CrashPointError, match=r"exit code 7\nat the crash point CrashPlan\(process='counter-0', at_write="
    ):
        crash_points(vanishes, SWEPT, moments=KILLS, near_steps=0)
