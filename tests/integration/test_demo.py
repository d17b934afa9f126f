"""The demo as its user runs it, small: real servers, real consumers in processes of their own.

It runs from the wheel, in an environment that has nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed import Installed, build_wheel
from tests.waiting import wait_until

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.spark, pytest.mark.wheel]

DEADLINE_S = 400  # a loaded machine needs minutes for three Sparks
START_S = 120  # servers, before the consumers
SMALL = ("demo", "--seconds", "5", "--rate", "2000", "--partitions", "4")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What `pip install 'zkcoord[demo]'` makes of an empty environment."""
    wheel = build_wheel(tmp_path_factory.mktemp("source"))
    return Installed(tmp_path_factory.mktemp("installed"), wheel, "[demo]")


@pytest.fixture
def environment(installed: Installed, tmp_path: Path) -> dict[str, str]:
    """The demo's folder goes below `tmp_path`."""
    return {**installed.env(), "TMPDIR": str(tmp_path)}


@pytest.fixture
def demo(
    installed: Installed, environment: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[subprocess.Popen[str]]:
    """A small demo under way; the parameter: more options."""
    more = getattr(request, "param", ())
    command = installed.command("zkcoord", *SMALL, *more, "--output", "json")
    with subprocess.Popen(
        command, cwd=installed.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


BOTH = pytest.mark.parametrize("demo", [(), pytest.param(("--kafka", "4"), marks=pytest.mark.long)], indirect=True)
"""With both kinds of brokers."""


def left_behind(folder: Path) -> list[str]:
    """Command lines of processes that name the folder (Linux; elsewhere nobody can tell)."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


@BOTH
def test_each_record_is_there_once_through_joins_and_kills(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    told, said = demo.communicate(timeout=DEADLINE_S)
    assert demo.returncode == 0, said
    result = json.loads(told)
    records, events = result["records"], result["events"]
    assert result["ok"] is True
    assert records["produced"] >= 5 * 2000
    assert records["lost"] == records["duplicated"] == records["foreign"] == 0
    assert records["processed"] == records["produced"]
    assert records["interrupted"] > 0
    assert [event["event"] for event in events] == [
        "a third consumer joins",
        "a consumer is killed",
        "the coordinator is killed",
        "a consumer leaves",
    ]
    joins, dies, fails_over, leaves = (event["moved"] for event in events)
    assert (joins, fails_over) == (1, 0)  # the fewest that can: 4 partitions of 2 consumers for a third; none
    assert dies in (1, 2)
    assert leaves == 2
    # what a lease's end took away and gave back counts too: on a loaded machine that happens
    assert result["unowned_ms"]["count"] >= joins + dies + leaves
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not left_behind(tmp_path), "all that it started has ended")


@BOTH
def test_sigterm_ends_everything_that_it_started(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    end = time.monotonic() + START_S
    while not any("zkcoord.demo.consumer" in line for line in left_behind(tmp_path)):
        assert time.monotonic() < end and demo.poll() is None
        threading.Event().wait(0.05)
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not left_behind(tmp_path), "all that it started has ended")
