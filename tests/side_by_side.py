"""How `scripts/test` runs the suites side by side: pytest-xdist, with this file as a plugin (`-p tests.side_by_side`).

The tests that need no server come first, spread over all workers: they use the processor, and a real server beside them
would answer late. The others follow, the longest first. What shares servers stays together in one worker (`scope_of`).

At the end there is a line for each suite and for each process, and as the very last one, alone on its line, the sum of
all.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from zkcoord.embedded import server

SUITES = (
    "docker",
    "spark",
    "legacy",
    "kafka",
    "postgres",
    "browser",
    "zookeeper",
)  # a test belongs to the first suite whose marker it has
PURE = "no server"
TOGETHER = ("tests/containers", "tests/spark/sinks", "tests/spark")
"""Folders that are each in one worker, since their tests share a network or a Spark. A folder stands before the one
that it lies in."""

APART = ("tests/spark/test_real_cluster.py", "tests/spark/test_real_connect.py")
"""Files there that do not: their Sparks are programs of their own. The folder is what the other workers wait for."""

LOOSE = "tests/sim/"  # each test by itself, since most of them have nothing to share
KEEPING = (
    "beside_kafka",
    "beside_storms",
    "claims",
    "edited",
    "flapping",
    "handover_moments",
    "hung",
    "mirror_storms",
    "mixed",
    "mixed_storms",
    "move_storms",
    "old_storms",
    "program_stores",
    "programs",
    "replay",
    "reset_storms",
    "source_switch",
    "stolen_storms",
)  # each of these files in one worker: two tests use the results of the same storms, which the file caches
PROPERTY = "suite"
PORT_SLICES = 8  # more than there are workers: a worker that replaces a crashed one has a new number
COUNTED = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}


def suite_of(marks: Iterable[str]) -> str:
    """The suite of a test with these marks."""
    present = set(marks)
    return next((suite for suite in SUITES if suite in present), PURE)


def sentence(counts: Mapping[str, int]) -> str:
    """The result in one line.

    >>> sentence({"passed": 3, "failed": 1})
    '3 passed, 1 failed, 0 skipped'
    """
    return ", ".join(f"{counts.get(outcome, 0)} {outcome}" for outcome in ("passed", "failed", "skipped"))


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker its own ports, so that no worker takes the port of a server that another one is about to
    restart."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        size = (server.PORT_MAX - server.PORT_MIN) // PORT_SLICES
        server.PORT_MIN += int(worker.removeprefix("gw")) % PORT_SLICES * size
        server.PORT_MAX = server.PORT_MIN + size


def scope_of(test_id: str) -> str:
    """What is run in one worker, one test after the other: a folder, a file or a single test.

    >>> scope_of("tests/spark/driver/test_loop.py::test_a"), scope_of("tests/cli/test_main.py::test_a[1]")
    ('tests/spark', 'tests/cli/test_main.py')
    >>> scope_of("tests/spark/sinks/test_delta.py::test_a")
    'tests/spark/sinks'
    >>> scope_of("tests/sim/test_seeds.py::test_a[1]"), scope_of("tests/sim/test_hung.py::test_a[1]")
    ('tests/sim/test_seeds.py::test_a[1]', 'tests/sim/test_hung.py')
    >>> scope_of("tests/spark/test_real_cluster.py::test_a")
    'tests/spark/test_real_cluster.py'
    """
    file = test_id.partition("::")[0]
    if file.startswith(LOOSE) and file.removeprefix(f"{LOOSE}test_").removesuffix(".py") not in KEEPING:
        return test_id
    if file in APART:
        return file
    return next((folder for folder in TOGETHER if test_id.startswith(f"{folder}/")), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests by `scope_of`. (xdist's own groups change a test's id, which pytest 9.2 does not allow.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests: tests that share a worker stand at the place of the heaviest of them."""
    ranks = {suite: number for number, suite in enumerate((*SUITES, PURE))}
    scopes: dict[str, int] = {}
    for item in items:
        suite = suite_of(mark.name for mark in item.iter_markers())
        item.user_properties.append((PROPERTY, suite))  # this goes with the test's reports to the process that counts
        scope = scope_of(item.nodeid)
        scopes[scope] = min(ranks[suite], scopes.get(scope, ranks[suite]))

    def place(item: pytest.Item) -> tuple[bool, int]:
        rank = scopes[scope_of(item.nodeid)]
        return rank < ranks[PURE], rank

    items.sort(key=place)


def counted(stats: Mapping[str, list[Any]]) -> tuple[dict[str, Counter[str]], dict[str, float]]:
    """For each suite how often a test passed, failed and was skipped, and the seconds that its tests took."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, float] = defaultdict(float)
    for category, reports in stats.items():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                suite = str(dict(report.user_properties)[PROPERTY])
                seconds[suite] += report.duration
                if category in COUNTED:
                    counts[suite][COUNTED[category]] += 1
    return counts, seconds


def worked(stats: Mapping[str, list[Any]]) -> dict[str, tuple[float, float, str]]:
    """For each process: the seconds that its tests took, the time when its last test ended, and the scope of that test.
    All others waited for the process that ended last."""
    found: dict[str, tuple[float, float, str]] = {}
    for report in (each for reports in stats.values() for each in reports if isinstance(each, pytest.TestReport)):
        process = getattr(report, "worker_id", "")
        if process:
            seconds, ended, last = found.get(process, (0.0, 0.0, ""))
            ended, last = max((ended, last), (report.stop, scope_of(report.nodeid)))
            found[process] = seconds + report.duration, ended, last
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each suite that had a test, and for each process."""
    counts, seconds = counted(terminalreporter.stats)
    for suite in (PURE, *reversed(SUITES)):
        if suite in counts:
            terminalreporter.write_line(f"suite {suite}: {sentence(counts[suite])} ({seconds[suite]:.0f} s of tests)")
    processes = worked(terminalreporter.stats)
    latest = max((ended for _, ended, _ in processes.values()), default=0.0)
    for process, (took, ended, last) in sorted(processes.items()):
        line = f"process {process}: {took:.0f} s of tests, ended {latest - ended:.0f} s before the last, with {last}"
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)  # after pytest's own last line
def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the sum of all, alone on the last line. A module that cannot be imported counts as failed."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter and not hasattr(config, "workerinput"):
        stats = reporter.stats
        total = Counter({COUNTED[category]: 0 for category in COUNTED})
        for category, outcome in COUNTED.items():
            total[outcome] += len(stats.get(category, ()))
        reporter.write_line(sentence(total))
