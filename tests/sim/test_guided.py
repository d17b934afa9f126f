"""The guided search: a course is the world that it was varied from up to its turn; what is new is kept, and varied."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from tests.sim import soak
from tests.sim.course import Course, Turn, course, told
from tests.sim.features import Feature, Seen
from tests.sim.guided import Played, Search, search
from tests.sim.options import FAULTS, Options
from tests.sim.scenarios import Scene, storm
from tests.sim.world import World

DOORS = 8
"""Behind the last one is a fault. At each tick one world in eight comes through one, one in four is outside again."""

TICKS, TICK_MS, BUDGET = 16, 10, 1_000


class FaultError(Exception):
    """Somebody came through all doors."""


def doors(seed: int, features: dict[Feature, int] | None = None) -> int:
    """How many doors this course has come through at most."""
    passed = [0]

    def look(world: World) -> None:
        if features is not None:
            features.setdefault(("doors", passed[-1]), world.steps)

    def knock() -> None:
        draw = world.rng.random()
        passed.append(passed[-1] + 1 if draw < 1 / 8 else 0 if draw > 3 / 4 else passed[-1])

    world = World(Course(seed, getattr(seed, "turns", ()), look), Options(time_rate=1.0, time_step_ms_max=1))
    for tick in range(TICKS):
        world.at((tick + 1) * TICK_MS, knock)
    world.storm(TICKS * TICK_MS)
    return max(passed)


def plays(courses: Iterable[Course]) -> Iterable[Played]:
    for each in courses:
        features: dict[Feature, int] = {}
        reached = doors(each, features)
        yield Played(each, features, failed=reached >= DOORS)


def test_the_guided_search_finds_a_planted_fault_that_as_many_plain_seeds_do_not_come_near() -> None:
    found = [played.course for played, _ in search(Search(0), BUDGET, plays) if played.failed]
    assert found
    assert doors(course(told(found[0]))) >= DOORS  # as its line repeats it
    assert max(doors(seed) for seed in range(BUDGET)) < DOORS - 1


def test_the_same_search_plays_the_same_courses_and_keeps_the_same() -> None:
    def played() -> list[tuple[str, bool]]:
        return [(told(each.course), kept) for each, kept in search(Search(7), 200, plays)]

    assert played() == played()
    assert played() != [(told(each.course), kept) for each, kept in search(Search(8), 200, plays)]


def test_a_course_is_kept_exactly_when_it_has_seen_something_new() -> None:
    found = Search(0)
    assert found.take(Played(Course(1), {("a", 1): 10}))
    assert not found.take(Played(Course(2), {("a", 1): 3}))
    assert found.take(Played(Course(3), {("a", 1): 3, ("b", 1): 20}))
    assert not found.take(Played(Course(4), {("c", 1): 5}, failed=True))  # it is a finding
    assert [(int(kept.course), kept.step) for kepts in found.kept.values() for kept in kepts] == [(1, 10), (3, 20)]


def moments(seed: int, count: int) -> list[tuple[int, float]]:
    """Where a storm of the product's stands after each of so many steps."""
    world = World(seed, Options.drawn(Random(3), fault_rate=0.02))
    Scene(world)
    world.stormy = True
    found = []
    for _ in range(count):
        world.step()
        found.append((world.now_ms, hash(world.rng.getstate())))
    return found


def test_a_course_is_its_seed_up_to_the_turn_and_another_world_behind_it() -> None:
    plain, turned = moments(5, 600), moments(Course(5, [Turn(400, 99, faults=True)]), 600)
    assert plain[:399] == turned[:399]
    assert plain[400] != turned[400]
    assert moments(course("5@400f:99"), 600) == turned
    assert moments(Course(5), 600) == plain


@pytest.mark.parametrize("text", ["17", "17@3:4", "17@3:4@900f:123456"])
def test_a_course_is_read_as_it_is_printed(text: str) -> None:
    assert told(course(text)) == text
    assert course(text) == course(text) != course("18")


@pytest.mark.parametrize("text", ["", "17@", "17@3", "17@3:x", "17@f3:4"])
def test_what_is_no_course_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"17@1203:99|invalid literal"):
        course(text)


def test_another_world_has_only_faults_that_it_may_have() -> None:
    options = Options.drawn(Random(1))
    assert set().union(*(options.with_other_faults(Random(seed), 0.1).faults for seed in range(50))) == set(FAULTS)


def test_looking_changes_nothing_and_sees_what_members_and_coordinators_do() -> None:
    seen = Seen()
    looked_at = storm(Course(3, (), seen.look))
    assert looked_at.random_fingerprint() == storm(3).random_fingerprint()
    views = {feature[0] for feature in seen.features}
    assert views == {"coordinator", "coordinators", "outside", "lease", "link", "task", "loss"}
    assert max(seen.features.values()) <= looked_at.steps


def test_a_finding_names_the_course_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def scene(seed: int) -> Any:
        world = World(seed, Options())
        if getattr(seed, "turns", ()):
            world.fail("one reader: t-0 has two")
        return storm(seed)

    monkeypatch.setitem(soak.SCENES, "storm", (scene, "tests/sim/test_seeds.py::test_every_storm_ends_in_a_calm"))
    monkeypatch.setattr("tests.sim.guided.ROUND", 2)
    assert soak.guided(3, 4, ["storm"], map, None, verbose=False) == soak.SAFETY
    lines = capsys.readouterr().out.splitlines()
    assert any("repeat with: ZKCOORD_SIM_SEED=3@" in line or "ZKCOORD_SIM_SEED=4@" in line for line in lines)
