"""The last lines of `scripts/test`, whichever process ran a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.side_by_side import APART, KEEPING, scope_of

ROOT = Path(__file__).parent.parent
SIDE_BY_SIDE = [
    "-p",
    "tests.side_by_side",
    "--dist",
    "loadscope",
    "--no-loadscope-reorder",
    "--max-worker-restart",
    "0",
]
DEADLINE_S = 120
SUITE = """
import os, pytest

@pytest.fixture
def broken():
    raise ValueError

@pytest.mark.zookeeper
def test_served(): pass

def test_passes(): pass

def test_fails(): assert not "this one"

def test_has_a_broken_fixture(broken): pass

@pytest.mark.skip
def test_is_skipped(): pass

@pytest.mark.spark
@pytest.mark.parametrize("number", range(20))
def test_of_one_process(number): assert os.environ.setdefault("FIRST", str(number)) == "0"
"""
SPREAD = """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_anywhere(number): print(f"{number} in {os.environ['PYTEST_XDIST_WORKER']}")
"""


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Exit code and standard output of the suites in `folder`."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *SIDE_BY_SIDE, *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_last_line_sums_up_all_processes_and_each_suite_has_its_own(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)

    code, lines = run(tmp_path, "-n", processes)

    assert (code, lines[-1]) == (1, "22 passed, 2 failed, 1 skipped")
    assert [line.partition(" (")[0] for line in lines if line.startswith("suite ")] == [
        "suite no server: 1 passed, 2 failed, 1 skipped",
        "suite zookeeper: 1 passed, 0 failed, 0 skipped",
        "suite spark: 20 passed, 0 failed, 0 skipped",
    ]
    told = [line.partition(":")[0] for line in lines if line.startswith("process ") and " ended 0 s before " in line]
    assert set(told) <= {"process gw0", "process gw1"}
    assert bool(told) is (processes != "0")


def test_a_module_that_cannot_be_imported_counts_as_failed(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text("import absent")
    code, lines = run(tmp_path, "-n", "2")
    assert code != 0
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_process_that_dies_ends_the_run_and_its_test_is_named(tmp_path: Path) -> None:
    """Otherwise the run would wait for ever for the last tests that this process was given."""
    (tmp_path / "test_a.py").write_text("import os\n\n\ndef test_dies(): os.abort()\ndef test_behind(): pass\n")
    (tmp_path / "test_b.py").write_text("def test_one(): pass\ndef test_two(): pass\n")

    code, lines = run(tmp_path, "-n", "2")

    assert code == 1
    assert any("crashed while running" in line and "test_a.py::test_dies" in line for line in lines)
    assert "replacing crashed worker" not in "\n".join(lines)


def test_where_no_test_is_found_the_exit_code_is_5(tmp_path: Path) -> None:
    code, lines = run(tmp_path, "-n", "2")
    assert (code, lines[-1]) == (5, "0 passed, 0 failed, 0 skipped")


@pytest.mark.parametrize(("environment", "code"), [({"CI": ""}, 5), ({"CI": "true"}, 1)])
def test_a_suite_left_out_by_the_processes_is_told_once(environment: dict[str, str], code: int) -> None:
    """No Docker engine answers at port 9."""
    arguments = ("-n", "2", "-m", "docker", "tests/containers")

    done, lines = run(ROOT, *arguments, DOCKER_HOST="tcp://127.0.0.1:9", **environment)

    told = [line.partition(" left out (")[0] for line in lines if " left out (" in line]
    assert (done, told, lines[-1]) == (code, ["suite docker"], "0 passed, 0 failed, 0 skipped")


def test_server_tests_share_a_process_and_come_after_the_others(tmp_path: Path) -> None:
    (tmp_path / "tests/spark").mkdir(parents=True)
    (tmp_path / "tests/sim").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"tests/spark/test_{name}.py").write_text(f"{SPREAD}\npytestmark = pytest.mark.spark")
    (tmp_path / "tests/sim/test_three.py").write_text(SPREAD)

    code, lines = run(tmp_path, "-n", "2", "-v", "--rootdir", str(tmp_path))

    ran = [(line.split("]")[0].lstrip("["), line.split("tests/")[1][:3]) for line in lines if "PASSED" in line]
    assert (code, len(ran)) == (0, 60)
    assert len({worker for worker, folder in ran if folder == "spa"}) == 1
    assert len({worker for worker, folder in ran if folder == "sim"}) == 2
    assert [folder for _, folder in ran[:15]] == ["sim"] * 15


def test_files_that_keep_what_their_storms_came_to_are_known() -> None:
    """Otherwise each process would play storms that another one has played already, or would count only some of
    them."""
    keeps = re.compile(r"^@cache\n(?=def \w+\(seed: int)|^REACHED\b", re.MULTILINE)
    files = {file.stem.removeprefix("test_"): file.read_text() for file in (ROOT / "tests/sim").glob("test_*.py")}
    assert {name for name, text in files.items() if keeps.search(text)} == set(KEEPING)


def test_files_that_start_sparks_of_their_own_and_use_no_other_are_known() -> None:
    """Otherwise the one process that has the session would play them, too, while the others have nothing left to do."""
    files = [(f"tests/spark/{file.name}", file.read_text()) for file in (ROOT / "tests/spark").glob("test_*.py")]
    assert {name for name, text in files if "run_program(" in text and "SparkSession" not in text} == set(APART)
    assert [scope_of(f"{name}::test_a") for name in APART] == list(APART)
