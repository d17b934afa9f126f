"""`scripts/setup` on machines that lack something. Python's venv and pip are replaced by small programs, so nothing is
fetched.

Also here: the answer of every script to `--help`, and to a call from another folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from zkcoord.cli.demo import demo as demo_command
from zkcoord.demo.options import PARTITIONS_MAX, PARTITIONS_MIN, RATE_MAX, SECONDS_MAX, SECONDS_MIN

SCRIPTS = Path(__file__).parent.parent / "scripts"
SETUP = SCRIPTS / "setup"
TOOLS = ("bash", "cat", "cp", "cut", "dirname", "flock", "grep", "head", "id", "ls", "mkdir", "mv", "rm", "sha256sum")
DEADLINE_S = 120
PLAYED = f"""#!/usr/bin/env bash
case "$1 ${{2:-}}" in
    "-m venv")
        mkdir -p "$3/bin"
        : >"$3/pyvenv.cfg"
        cp "$0" "$3/bin/python"
        ;;
    "-m pip")
        if [[ ${{@: -1}} == pip ]]; then
            [[ ! -f no-newer-pip ]]
            exit
        fi
        echo "${{@: -1}}" >>pip.log
        [[ ! -f pip.sh ]] || source ./pip.sh
        ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
OLD = """#!/usr/bin/env bash
[[ $1 != --version ]] || echo "Python 3.9.2"
[[ $1 == --version ]]
"""
UNTIL_INTERRUPTED = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(1))
pathlib.Path('waits').touch()
while True:
    time.sleep(0.02)
"""
WAITS = "until [[ -e go ]]; do read -rt 0.02 <> <(:) || true; done"  # bash's own sleep


class Checkout:
    """A checkout with a replaced Python. `pip.log` lists the extras that pip was asked for; `pip.sh` is run in place of
    pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "tools"
        self.bin.mkdir()
        self.program("python3", PLAYED)
        for tool in (*TOOLS, "env"):
            found = shutil.which(tool)
            assert found, f"this machine has no {tool}"
            (self.bin / tool).symlink_to(found)
        (folder / "scripts").mkdir()
        shutil.copy(SETUP, folder / "scripts")
        for name in ("setup.py", "pyproject.toml", "constraints.txt"):
            (folder / name).write_text(name)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def start(self, *extras: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", self.folder / "scripts" / "setup", *extras],
            env={"PATH": str(self.bin), **environment},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell cannot trap an ignored signal
        )

    def run(self, *extras: str, **environment: str) -> tuple[int, str]:
        """The exit code and the error output."""
        with self.start(*extras, **environment) as process:
            said = process.communicate(timeout=DEADLINE_S)[1]
        return process.returncode, said

    def asked(self) -> list[str]:
        """The extras that pip was asked for."""
        log = self.folder / "pip.log"
        return log.read_text().splitlines() if log.exists() else []

    def stamped(self) -> list[str]:
        """The sets of extras that are noted as installed."""
        first, *extras = (self.folder / ".venv/.zkcoord-setup").read_text().splitlines()
        assert len(first) == 64
        return extras


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def await_true(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


def setting_up(extras: str) -> str:
    text = "the first time this fetches up to 0.6 GB, which takes minutes"
    return f"scripts/setup: setting up .venv with [{extras}]; {text}\n"


def test_setup_does_nothing_until_something_changes(checkout: Checkout) -> None:
    assert checkout.run("demo") == (0, setting_up("demo"))
    assert checkout.run("demo") == (0, "")
    assert checkout.run() == (0, setting_up("demo,test"))
    (checkout.folder / "constraints.txt").write_text("changed")
    assert checkout.run("demo") == (0, setting_up("demo"))
    assert (checkout.asked(), checkout.stamped()) == ([".[demo]", ".[demo,test]", ".[demo]"], ["demo"])


def test_two_at_once_follow_each_other_and_both_are_stamped(checkout: Checkout) -> None:
    (checkout.folder / "pip.sh").write_text(WAITS)
    with checkout.start("demo") as first:
        await_true(checkout.asked)
        with checkout.start("test") as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "scripts/setup: waiting for another one that sets up .venv\n"
            assert checkout.asked() == [".[demo]"]
            (checkout.folder / "go").touch()
            assert (first.wait(DEADLINE_S), second.wait(DEADLINE_S)) == (0, 0)
    assert (checkout.asked(), checkout.stamped()) == ([".[demo]", ".[test]"], ["demo", "test"])


def test_without_python_or_with_an_old_one_what_was_found_is_told(checkout: Checkout) -> None:
    needs = "scripts/setup: zkcoord needs Python 3.11, 3.12 or 3.13 on PATH; found: "
    advice = "install one, e.g. Debian's python3 and python3-venv\n"
    checkout.program("python3", OLD)
    assert checkout.run() == (2, f"{needs}python3 is Python 3.9.2; {advice}")
    (checkout.bin / "python3").unlink()
    assert checkout.run() == (2, f"{needs}none; {advice}")
    checkout.program("python3.12", PLAYED)
    assert checkout.run("demo") == (0, setting_up("demo"))


def another(takes: int, *, makes_venvs: bool = True) -> str:
    """A Python of its own that answers how many microseconds some calls take it."""
    first = f"""case "$*" in
    *perf_counter*) echo {takes}; exit ;;
    *realpath*) echo "$0"; exit ;;
    *ensurepip*) exit {int(not makes_venvs)} ;;
esac
"""
    return PLAYED.replace('case "$1', f'{first}case "$1', 1)


def test_a_python_that_is_much_faster_than_the_first_is_taken_and_named(checkout: Checkout) -> None:
    slow, fast = (str(checkout.bin / name) for name in ("python3", "python3.12"))
    checkout.program("python3", another(1_000))
    checkout.program("python3.12", another(600))
    named = f"scripts/setup: taking {fast}, which needs 60 % of the time of {slow}; ZKCOORD_PYTHON can name another\n"
    assert checkout.run("demo") == (0, named + setting_up("demo"))
    assert "echo 600" in (checkout.folder / ".venv/bin/python").read_text()


@pytest.mark.parametrize(
    ("program", "environment"),
    [
        (another(900), {}),
        (another(600, makes_venvs=False), {}),
        (another(600), {"ZKCOORD_PYTHON": "python3"}),
    ],
    ids=["a little faster", "makes no environments", "another is named"],
)
def test_the_first_python_is_taken(checkout: Checkout, program: str, environment: dict[str, str]) -> None:
    checkout.program("python3", another(1_000))
    checkout.program("python3.12", program)
    assert checkout.run("demo", **environment) == (0, setting_up("demo"))
    assert "echo 1000" in (checkout.folder / ".venv/bin/python").read_text()


def test_the_tested_versions_can_be_installed_with_each_python_that_zkcoord_takes() -> None:
    """Debian 12 has Python 3.11.2. Before the fix one of the versions needed 3.11.5: nothing could be set up there."""
    lines = [line for line in (SETUP.parent.parent / "constraints.txt").read_text().splitlines() if "==" in line]
    names = {line.partition("==")[0].lower() for line in lines}
    installed = {dist.name.lower(): dist.metadata for dist in distributions()}
    needs = {name: installed[name].get("Requires-Python", "") for name in names & installed.keys()}
    assert len(needs) > len(names) // 2
    for python in ("3.11.0", "3.12.0", "3.13.0"):
        assert [name for name, needed in needs.items() if python not in SpecifierSet(needed)] == []


def test_a_python_without_venv_is_told_with_the_package(checkout: Checkout) -> None:
    checkout.program("python3", PLAYED.replace("*) exec", '*"import ensurepip"*) exit 1 ;;\n    *) exec'))
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    told = f"scripts/setup: this Python makes no virtual environments; install Debian's package {package}\n"
    assert checkout.run() == (2, told)


def test_one_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.run("demo")
    python = checkout.folder / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/absent/python3")
    anew = "scripts/setup: .venv is incomplete, or its Python is gone: making it anew\n"
    assert checkout.run("demo") == (0, anew + setting_up("demo"))
    assert checkout.stamped() == ["demo"]


def test_one_that_broke_off_while_it_was_made_is_made_anew(checkout: Checkout) -> None:
    checkout.program("python3", PLAYED.replace('cp "$0"', 'exit 1; cp "$0"'))
    assert checkout.run("demo")[0] == 1
    checkout.program("python3", PLAYED)
    anew = "scripts/setup: .venv is incomplete, or its Python is gone: making it anew\n"
    assert checkout.run("demo") == (0, anew + setting_up("demo"))


def test_a_folder_that_is_no_virtual_environment_is_not_touched(checkout: Checkout) -> None:
    mine = checkout.folder / "mine"
    (mine / "lib").mkdir(parents=True)
    advice = "remove it, or let ZKCOORD_VENV name another folder"
    told = f"scripts/setup: mine is no virtual environment with pip and a Python from 3.11 to 3.13; {advice}\n"
    assert checkout.run("demo", ZKCOORD_VENV="mine") == (2, told)
    assert list(mine.iterdir()) == [mine / "lib"]


def test_a_pip_that_fails_is_told_and_tried_again(checkout: Checkout) -> None:
    (checkout.folder / "pip.sh").write_text("echo 'ERROR: no network' >&2; exit 1")
    code, said = checkout.run("demo")
    assert (code, said.splitlines()[1]) == (1, "ERROR: no network")
    assert said.splitlines()[2].startswith("scripts/setup: pip could not install zkcoord[demo]; why stands above.")
    (checkout.folder / "pip.sh").unlink()
    assert checkout.run("demo") == (0, setting_up("demo"))


def test_a_pip_that_cannot_be_renewed_is_used_as_it_is(checkout: Checkout) -> None:
    (checkout.folder / "no-newer-pip").touch()
    told = "scripts/setup: pip could not be renewed, and goes on as it is\n"
    assert checkout.run("demo") == (0, setting_up("demo") + told)
    assert checkout.stamped() == ["demo"]


def test_an_interrupt_ends_it_with_130(checkout: Checkout) -> None:
    (checkout.folder / "pip.sh").write_text(f'exec {sys.executable} -c "{UNTIL_INTERRUPTED}"')
    with checkout.start("demo") as process:
        await_true((checkout.folder / "waits").exists)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 130
    assert said == setting_up("demo") + "scripts/setup: interrupted; the next run goes on\n"


@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.iterdir()))
def test_a_script_shows_its_help_and_sets_up_nothing(checkout: Checkout, name: str) -> None:
    shutil.copy(SCRIPTS / name, checkout.folder / "scripts")
    sed = shutil.which("sed")
    assert sed
    (checkout.bin / "sed").symlink_to(sed)
    command = ["bash", checkout.folder / "scripts" / name, "--help"]
    done = subprocess.run(
        command, env={"PATH": str(checkout.bin)}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"scripts/{name} [")
    assert not (checkout.folder / ".venv").exists()


def test_an_option_is_not_taken_for_an_extra(checkout: Checkout) -> None:
    refused = (2, "scripts/setup: there is no option --extras; see scripts/setup --help\n")
    assert checkout.run("--extras") == refused
    assert not (checkout.folder / ".venv").exists()


def test_a_journal_is_looked_for_where_the_script_was_called(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("hello\n")
    done = subprocess.run(
        [SCRIPTS / "replay", "journal"],
        cwd=tmp_path,
        env={**os.environ, "ZKCOORD_VENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith("error: journal: line 1 is no JSON")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--seconds", "abc"], "--seconds 'abc': choose from 5 to 3600"),
        (["--keep", "--seconds=4"], "--seconds '4': choose from 5 to 3600"),
        (["--rate", "100001"], "--rate '100001': choose from 1 to 100000"),
        (["--partitions", "99999999999999999999"], "--partitions '99999999999999999999': choose from 3 to 1000"),
        (["--partitions"], "--partitions '': choose from 3 to 1000"),
        (["--second", "7"], "there is no option --second"),
        (["now"], "'now' is no option"),
    ],
)
def test_a_demo_that_cannot_be_shown_is_refused_before_anything_is_set_up(
    checkout: Checkout, words: list[str], why: str
) -> None:
    """Before the fix, it fetched 0.6 GB first."""
    done = demo(checkout, *words)
    assert (done.returncode, done.stderr) == (2, f"scripts/demo: {why}; see scripts/demo --help\n")
    assert not (checkout.folder / ".venv").exists()


def test_the_demos_script_lets_pass_what_the_demo_takes(checkout: Checkout) -> None:
    least = ["--seconds", SECONDS_MIN, "--rate=1", "--partitions", PARTITIONS_MIN]
    most = ["--seconds", SECONDS_MAX, "--rate", RATE_MAX, f"--partitions={PARTITIONS_MAX}"]
    options = [name for option in demo_command.params for name in option.opts if name not in ("--help", "--version")]
    for words in (least, most):
        assert demo(checkout, *map(str, words)).returncode == 127  # nothing was installed here
    for option in options:
        assert "there is no option" not in demo(checkout, option, "7").stderr


def demo(checkout: Checkout, *words: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/demo in this checkout."""
    shutil.copy(SCRIPTS / "demo", checkout.folder / "scripts")
    command = ["bash", checkout.folder / "scripts" / "demo", *words]
    return subprocess.run(
        command, env={"PATH": str(checkout.bin)}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
