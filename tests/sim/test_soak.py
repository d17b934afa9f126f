"""The verdicts of `scripts/simulate`: each kind of failure has its exit code and a line that plays the seed again."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.sim import soak
from tests.sim.soak import BUG, LIVENESS, SAFETY, Result
from tests.sim.world import World

ROOT = Path(__file__).parents[2]
ONE_CASE = {
    "tests/sim/test_failures_stability.py::test_f26_no_write_of_a_whole_storm_replaces_or_removes_what_it_did_not_read",
    "tests/sim/test_failures_tools.py::test_f27_the_tools_count_what_is_in_zookeeper_in_every_storm",
}
"""Each looks, in a storm that the soak plays, at what its failure case is about."""


def broken(complaint: str) -> soak.Callable[[int], World]:
    """A scene that fails with this complaint."""

    def scene(seed: int) -> World:
        world = World(seed)
        world.fail(complaint)
        return world

    return scene


def raising(seed: int) -> World:
    """A scene in which the product raises."""
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("scene", "kind"),
    [
        (broken("one_reader_by_journal: a reads t-0, which b holds"), SAFETY),
        (broken("did not come to rest: t-0 has no owner"), LIVENESS),
        (broken("balance did not come within 10 steps"), LIVENESS),
        (raising, BUG),
    ],
)
def test_a_failure_has_its_kind_and_its_line(
    scene: soak.Callable[[int], World], kind: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(soak.SCENES, "storm", (scene, "tests/sim/test_seeds.py::test_every_storm_ends_in_a_calm"))
    result = soak.play(("storm", 7))
    assert (result.scene, result.seed, result.kind) == ("storm", 7, kind)
    soak.report(result, verbose=False)
    line = "ZKCOORD_SIM_SEED=7 .venv/bin/python -m pytest 'tests/sim/test_seeds.py::test_every_storm_ends_in_a_calm'"
    assert capsys.readouterr().out.splitlines()[-1] == f"  repeat with: {line}"


def test_the_soak_plays_every_storm_of_the_tests_and_names_the_test_that_repeats_a_seed() -> None:
    of_storms = re.compile(r"^def (test_\w*storm\w*)\(seed: int\)", re.MULTILINE)
    found = {
        f"tests/sim/{file.name}::{name}"
        for file in sorted((ROOT / "tests/sim").glob("test_*.py"))
        for name in of_storms.findall(file.read_text(encoding="utf-8"))
    }
    assert {test for _, test in soak.SCENES.values()} == found - ONE_CASE
    assert found >= ONE_CASE


def test_a_seed_without_failure_is_kind_0() -> None:
    assert soak.play(("storm", 3)) == Result("storm", 3, 0, "")


def test_a_world_that_was_played_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[World]] = []
    begin = World.__init__

    def begun(world: World, *arguments: Any, **more: Any) -> None:
        made.append(weakref.ref(world))
        begin(world, *arguments, **more)

    monkeypatch.setattr(World, "__init__", begun)
    for scene in ("hung", "old"):  # tests cache the played seeds of these scenes
        assert soak.play((scene, 3)).kind == 0
    gc.collect()
    assert [world() for world in made] == [None, None]


def test_it_plays_until_told_to_stop() -> None:
    told_soon = "from tests.sim import soak; soak.PROGRESS_SECONDS = 1; raise SystemExit(soak.main())"
    command = [sys.executable, "-c", told_soon, "--first", "1", "--workers", "1", "--scene", "storm"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as running:
        assert running.stderr is not None
        assert " a second, up to seed " in running.stderr.readline()
        for _ in range(2):  # as `timeout` does: first the program, then its whole group
            os.killpg(running.pid, signal.SIGTERM)
        out, told = running.communicate(timeout=60)
    assert running.returncode == 0
    assert out.endswith(": no failure\n")
    assert told.splitlines()[-1] == "stopped"  # no traceback


def test_all_scenes_of_a_seed_come_before_the_next_seed_or_only_those_that_are_asked_for() -> None:
    assert list(soak.jobs(3, 2)) == [(scene, seed) for seed in (3, 4) for scene in soak.SCENES]
    assert list(soak.jobs(3, 2, ["storm"])) == [("storm", 3), ("storm", 4)]


def test_a_wrong_call_ends_with_2() -> None:
    command = [sys.executable, "-m", "tests.sim.soak", "--workers", "0"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 2
