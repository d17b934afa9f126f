"""Ctrl-C while the program loads, which takes a second: it ends without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import PATIENCE_SECONDS

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


def interrupted(module: str, handler: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that has a SIGINT when it looks for this module."""
    command = [sys.executable, "-c", INTERRUPTED_WHILE, module, handler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["zkcoord", "kazoo", "zkcoord.cli.main", "zkcoord.cli.watch"])
def test_an_interrupt_while_it_loads_ends_it_as_a_shell_reports_it(module: str) -> None:
    assert interrupted(module, "default_int_handler") == (128 + signal.SIGINT, "", "")


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    code, shown, errors = interrupted("zkcoord.cli.watch", "SIG_IGN")

    assert (code, "0001" in shown, errors) == (0, True, "")
