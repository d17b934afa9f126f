"""What the program loads for a call, and Ctrl-C meanwhile, which ends it without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import PATIENCE_SECONDS
from zkcoord.cli.main import cli
from zkcoord.cli.options import commands_of

ROOT = Path(__file__).parents[2]
INTERRUPTED_WHILE = """
import os, signal, sys
module, handler = sys.argv[1:]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
import zkcoord_command
signal.signal(signal.SIGINT, getattr(signal, handler))
sys.argv = ["zkcoord", "migrate", "history"]
zkcoord_command.main()
"""


LOADED = """
import sys, zkcoord_command
sys.argv = ["zkcoord", "group", "config", "--help"]
try:
    sys.stdout, shown = sys.stderr, sys.stdout
    zkcoord_command.main()
except SystemExit:
    print(*sys.modules, sep="\\n", file=shown)
"""


def interrupted(module: str, handler: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that has a SIGINT when it looks for this module."""
    command = [sys.executable, "-c", INTERRUPTED_WHILE, module, handler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["zkcoord", "kazoo", "zkcoord.cli.main", "zkcoord.cli.migrate.schema"])
def test_an_interrupt_while_it_loads_ends_it_as_a_shell_reports_it(module: str) -> None:
    assert interrupted(module, "default_int_handler") == (128 + signal.SIGINT, "", "")


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    code, shown, errors = interrupted("zkcoord.cli.migrate.schema", "SIG_IGN")

    assert (code, "0001" in shown, errors) == (0, True, "")


def test_a_call_loads_its_command_and_neither_others_nor_what_coordinates_and_consumes() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, cwd=ROOT)

    loaded = set(done.stdout.splitlines())
    assert {"zkcoord.cli.group.config", "zkcoord.cli.group.describe"} <= loaded
    others = {"zkcoord.cli.consume", "zkcoord.cli.group.plan", "zkcoord.consumer", "zkcoord.coordinator"}
    assert loaded & others == set()


def test_each_command_has_the_name_under_which_it_is_loaded() -> None:
    assert [(words, command.name) for words, command in commands_of(cli) if command.name != words.split()[-1]] == []
