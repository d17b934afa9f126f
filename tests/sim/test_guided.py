"""The guided search: up to its turn a course is the world from which it was varied. Courses with something new are kept
and varied."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.sim import soak
from tests.sim.course import Course, Halt, HaltError, Strike, Turn, course, told
from tests.sim.families import families, parting
from tests.sim.features import Feature, Seen, Sight
from tests.sim.guided import HALT_STEPS, Played, Search, Yields, search
from tests.sim.options import FAULTS, Options
from tests.sim.scenarios import Scene, storm
from tests.sim.test_mutations_link import (
    an_answer_extends_before_the_registration_is_seen,
    nobody_leaves_a_silent_server,
)
from tests.sim.world import World

ROOT = Path(__file__).parents[2]
COURSES = 12
STARTS = 1_000, 4_000
DOORS = 8
"""Behind the last one is a fault. At each tick one world in eight comes through one, one in four is outside again."""

TICKS, TICK_MS, BUDGET = 16, 10, 1_000


class FaultError(Exception):
    """The world came through all doors."""


def doors(seed: int, features: dict[Feature, Sight] | None = None) -> int:
    """The highest number of doors that this course comes through."""
    passed = [0]

    def look(world: World) -> None:
        if features is not None:
            features.setdefault(("doors", passed[-1]), Sight(world.steps))

    def knock() -> None:
        draw = world.rng.random()
        passed.append(passed[-1] + 1 if draw < 1 / 8 else 0 if draw > 3 / 4 else passed[-1])

    world = World(Course(seed, getattr(seed, "events", ()), look), Options(time_rate=1.0, time_step_ms_max=1))
    for tick in range(TICKS):
        world.at((tick + 1) * TICK_MS, knock)
    world.storm(TICKS * TICK_MS)
    return max(passed)


def plays(courses: Iterable[Course]) -> Iterable[Played]:
    for each in courses:
        features: dict[Feature, Sight] = {}
        reached = doors(each, features)
        yield Played(each, features, failed=reached >= DOORS)


def test_the_guided_search_finds_a_planted_fault_that_as_many_plain_seeds_do_not_come_near() -> None:
    found = [played.course for played, _ in search(Search(0), BUDGET, plays) if played.failed]
    assert found
    assert doors(course(told(found[0]))) >= DOORS  # as the printed line repeats it
    assert max(doors(seed) for seed in range(BUDGET)) < DOORS - 1


def test_the_same_search_plays_the_same_courses_and_keeps_the_same() -> None:
    def played() -> list[tuple[str, bool]]:
        return [(told(each.course), kept) for each, kept in search(Search(7), 200, plays)]

    assert played() == played()
    assert played() != [(told(each.course), kept) for each, kept in search(Search(8), 200, plays)]


def test_a_course_is_kept_exactly_when_it_has_seen_something_new() -> None:
    found = Search(0)
    assert found.take(Played(Course(1), {("a", 1): Sight(10)}))
    assert not found.take(Played(Course(2), {("a", 1): Sight(3)}))
    assert found.take(Played(Course(3), {("a", 1): Sight(3), ("b", 1): Sight(20, "c0")}))
    assert not found.take(Played(Course(4), {("c", 1): Sight(5)}, failed=True))  # a failure is a finding
    kept = [(int(kept.course), kept.sight) for kepts in found.kept.values() for kept in kepts]
    assert kept == [(1, Sight(10)), (3, Sight(20, "c0"))]


def moments(seed: int, count: int) -> list[tuple[int, float]]:
    """The states of a product's storm after each of `count` steps."""
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


def test_a_strike_is_one_more_fault_of_its_kind_at_its_process_and_changes_nothing_before() -> None:
    def struck(kind: str, name: str) -> World:
        world = World(Course(5, [Strike(400, kind, name, 1)]), Options.drawn(Random(3), fault_rate=1e-9))
        Scene(world)
        world.stormy = True
        while world.steps < 400:
            world.step()
        return world

    assert [name for name, each in struck("pause", "consumer1").processes.items() if each.paused] == ["consumer1"]
    assert not struck("crash", "coordinator0").processes["coordinator0"].running
    assert [each.cut for each in struck("cut", "").processes.values()].count(True) == 1
    plain, turned = moments(5, 600), moments(Course(5, [Strike(400, "crash", "coordinator0", 7)]), 600)
    assert plain[:399] == turned[:399]
    assert plain[-1] != turned[-1]
    assert moments(course("5@400!crash.coordinator0:7"), 600) == turned


def test_courses_are_varied_at_rare_sights_and_mostly_at_their_processes() -> None:
    """Courses turn, get strikes, lose or move an event, or are spliced. Everything before that point stays."""
    found, old = Search(1), Strike(500, "flap", "c1", 1)
    found.take(Played(Course(1, [old]), {("a", 1): Sight(1_000, "c2")}))
    found.take(Played(Course(2, [old._replace(step=995, name="c3")]), {("a", 2): Sight(1_000, "c2")}))
    varied = [each for each in found.draw(400) if each.events]
    assert {int(each) for each in varied} == {1, 2}
    new = [event for each in varied for event in each.events if event.step >= 900]
    strikes = [event for event in new if isinstance(event, Strike)]
    turns = [event for event in new if isinstance(event, Turn)]
    assert min(len(strikes), len(turns)) > 50
    assert {event.kind for event in strikes} == set(FAULTS)
    assert sum(event.name == "c2" for event in strikes) > sum(event.name == "" for event in strikes) > 20
    assert sum(old in each.events for each in varied) > len(varied) // 3
    halts = [event.step for each in varied for event in each.events if isinstance(event, Halt)]
    assert len(varied) // 2 < len(halts) < len(varied)
    assert min(halts) >= 1_000 + HALT_STEPS
    assert any(
        int(each) == 1 and event.step >= 900 and event[1:] == ("flap", "c3", 1)
        for each in varied
        for event in each.events
    )


def test_a_course_that_halts_is_played_no_further_and_has_failed_only_if_it_did_so_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scene(seed: int) -> None:
        world = World(seed, Options())
        world.at(300, lambda: world.fail("one reader: t-0 has two"))
        world.storm(600)

    with pytest.raises(HaltError, match="ends with step 400"):
        moments(course("5@400."), 600)
    monkeypatch.setitem(soak.SCENES, "storm", (scene, ""))
    assert soak.play(("storm", course("5@1."))).kind == 0
    assert soak.play(("storm", course("5@590."))).kind == soak.SAFETY


def test_a_fault_that_showed_news_of_a_view_is_tried_there_more_often() -> None:
    yields = Yields()
    for _ in range(20):
        yields.tried("grace", ["flap"], new=True)
        yields.tried("grace", ["crash"], new=False)

    def crashes(view: str) -> int:
        return [yields.choose(Random(n), view, {"flap": 1, "crash": 1}) for n in range(200)].count("crash")

    assert 0 < crashes("grace") < 20
    assert 70 < crashes("loss") < 130


def test_a_course_nearer_to_a_forbidden_state_is_varied_more_often() -> None:
    found = Search(1)
    for depth in range(1, 11):
        found.take(Played(Course(depth), {("grace", depth): Sight(1_000, "c2", depth)}))
    drawn = [int(each) for each in found.draw(600) if each.events]
    assert sum(seed > 7 for seed in drawn) > 1.5 * sum(seed < 4 for seed in drawn) > 0


def test_courses_that_part_late_are_played_together_and_answered_as_if_each_were_played_alone() -> None:
    strikes = [Strike(400, "crash", "coordinator0", seed) for seed in (7, 8)]
    courses = [*(Course(5, [Turn(300, 99), each, Halt(700)]) for each in strikes), course("6@350:1@700.")]
    family, single = families(courses)
    assert (family, single) == (courses[:2], courses[2:])
    assert parting(family) == 400
    together = soak.play_looking(("storm", family))
    alone = [soak.play_looking(("storm", [each]))[0] for each in family]
    assert [result for result, _ in together] == [result for result, _ in alone]
    assert [told(result.seed) for result, _ in together] == [told(each) for each in family]
    assert all(set(each) > {("outside", "opening", 0)} for _, each in together)


@pytest.mark.parametrize(
    ("scene", "texts"),
    [
        pytest.param("storm", ["5@150.@900:1", "5@150.@900:2"], id="they end before they part"),
        pytest.param("plain", ["5@150:1@200.", "5@150:2@200."], id="threads cannot be forked"),
    ],
)
def test_courses_that_cannot_be_forked_are_answered_all_the_same(scene: str, texts: list[str]) -> None:
    family = list(map(course, texts))
    assert [(each.seed, each.kind) for each, _ in soak.play_looking((scene, family))] == [(each, 0) for each in family]


@pytest.mark.parametrize("text", ["17", "17@3:4", "17@3:4@900f:123456", "17@3!flap.consumer0:4@900!outage.:1@950."])
def test_a_course_is_read_as_it_is_printed(text: str) -> None:
    assert told(course(text)) == text
    assert course(text) == course(text) != course("18")


@pytest.mark.parametrize("text", ["", "17@", "17@3", "17@3:x", "17@f3:4", "17@3!quake.:1", "17@3.5"])
def test_a_wrong_course_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither a turn as 1203:99 nor|invalid literal"):
        course(text)


def test_another_world_has_only_faults_that_it_may_have() -> None:
    options = Options.drawn(Random(1))
    assert set().union(*(options.with_other_faults(Random(seed), 0.1).faults for seed in range(50))) == set(FAULTS)


def test_looking_changes_nothing_and_sees_what_members_and_coordinators_do() -> None:
    seen = Seen()
    looked_at = storm(Course(3, (), seen.look))
    assert looked_at.random_fingerprint() == storm(3).random_fingerprint()
    views = {feature[0] for feature in seen.features}
    always = {"coordinator", "coordinators", "outside", "lease", "link", "task", "loss", "overdue"}
    assert always <= views <= always | {"grace", "owned", "stuck", "losing"}
    assert max(sight.step for sight in seen.features.values()) <= looked_at.steps


def test_a_finding_names_the_course_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def scene(seed: int) -> Any:
        world = World(seed, Options())
        if getattr(seed, "events", ()):
            world.fail("one reader: t-0 has two")
        return storm(seed)

    monkeypatch.setitem(soak.SCENES, "storm", (scene, "tests/sim/test_seeds.py::test_every_storm_ends_in_a_calm"))
    assert soak.guided(3, 4, ["storm"], map, None, verbose=False, at_once=2) == soak.SAFETY
    lines = capsys.readouterr().out.splitlines()
    assert any("repeat with: ZKCOORD_SIM_SEED=3@" in line or "ZKCOORD_SIM_SEED=4@" in line for line in lines)


def test_the_same_search_on_one_and_on_two_workers_plays_and_keeps_the_same(tmp_path: Path) -> None:
    small_rounds = f"from tests.sim import guided, soak; guided.ROUND = {COURSES // 3}; raise SystemExit(soak.main())"

    def played(workers: int) -> tuple[str, str]:
        corpus = tmp_path / str(workers)
        words = f"--guided --first 3 --seeds {COURSES} --scene storm --workers {workers} --corpus {corpus}".split()
        command = [sys.executable, "-c", small_rounds, *words]
        out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return re.sub(r"in \d+ s", "", out), (corpus / "storm.txt").read_text()

    told, kept = played(1)
    assert told.startswith(f"{COURSES} courses from seed 3 on ")
    assert "!" in kept  # some courses have strikes
    assert played(2) == (told, kept)


def finding(scene: str, first: int, courses: int) -> tuple[Course | None, int]:
    """The first course of a search that fails, and how many courses were played."""
    tried = 0

    def playing(drawn: Iterable[Course]) -> Iterable[Played]:
        nonlocal tried
        for each in families(drawn):
            for result, features in soak.play_looking((scene, each)):
                tried += 1
                yield Played(course(told(result.seed)), features, bool(result.kind))

    return next((played.course for played, _ in search(Search(first), courses, playing) if played.failed), None), tried


def test_a_search_begins_with_plain_seeds_which_find_a_fault_of_one_rare_event_and_its_line_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody_leaves_a_silent_server(monkeypatch)
    found, _ = finding("storm", 1_000, 64)
    assert found is not None
    assert soak.play(("storm", course(told(found)))).kind in (soak.SAFETY, soak.LIVENESS)


@pytest.mark.long
def test_a_search_finds_a_fault_of_several_rare_events_by_variation_where_as_many_plain_seeds_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are several starts, since any change of the product changes what seeds draw. A plain seed takes longer than
    a course."""

    def varied(first: int) -> bool:
        found, tried = finding("churn", first, 400)
        if found is None or not found.events:
            return False
        assert soak.play(("churn", course(told(found)))).kind == soak.SAFETY
        return not any(soak.play(("churn", seed)).kind for seed in range(first, first + tried))

    an_answer_extends_before_the_registration_is_seen(monkeypatch)
    assert any(map(varied, STARTS))
