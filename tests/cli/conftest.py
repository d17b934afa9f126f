"""The command line under test: in this process (`run`), or as a process of its own (`spawn`)."""

import logging
import os
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tests.cli.printed import check_printed
from tests.cli.program import Program, Run, Spawn
from zkcoord.cli.main import cli
from zkcoord.cli.options import Limits, Settings
from zkcoord.cli.variables import OTHER_VARIABLES


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove zkcoord's settings from the environment; restore logging after the test."""
    for name in [name for name in os.environ if name.startswith("ZKCOORD_") and name not in OTHER_VARIABLES]:
        monkeypatch.delenv(name, raising=False)
    root, ours = logging.getLogger(), logging.getLogger("zkcoord")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def run() -> Run:
    """Runs the command line with these arguments; the result has exit code, stdout and stderr.

    Its output for programs is checked by the schema of that output.
    """

    def invoke(*arguments: str, limits: Limits | None = None) -> Result:
        settings = None if limits is None else Settings(limits=limits)
        result = CliRunner().invoke(cli, list(arguments), prog_name="zkcoord", obj=settings)
        check_printed(arguments, result.stdout)
        return result

    return invoke


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts `zkcoord` with these arguments as a process, which never outlives the test."""
    programs: list[Program] = []

    def start(*arguments: str, lines_max: int | None = None) -> Program:
        programs.append(Program(*arguments, lines_max=lines_max))
        return programs[-1]

    yield start
    for program in programs:
        program.close()
