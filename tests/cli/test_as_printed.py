"""The tutorial's commands and examples in plain Python on real servers.

They run as they are printed, but for addresses. tests/cli/test_dashboard.py plays the tutorial's lines about compose.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.servers import Servers, running
from tests.integration.brokers import BOTH
from tests.metrics.test_endpoint import free_address, get
from tests.pages import python_block
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorial.md"
BY_HAND = ("scripts/demo", ". .venv/bin/activate", "docker ")
"""What the tutorial has people do beside calling zkcoord: the servers here take the demo's place."""
PARTITIONS = 8
RECORDS = 20 * PARTITIONS


@pytest.fixture(params=BOTH)
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    with running(monkeypatch, request.param) as found:
        found.fill(PARTITIONS, RECORDS)
        yield found


def test_each_step_of_the_tutorial_works_as_it_is_printed(servers: Servers) -> None:
    servers.start("coordinator")
    lines = re.findall(r"^    (\S.*)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    calls = [line for line in lines if not line.startswith(BY_HAND)]
    assert len(calls) > 10
    printed: dict[str, list[str]] = {}
    for line in calls:
        program, *words = shlex.split(line, comments=True)
        assert program == "zkcoord"
        if "page" in words:
            address = free_address()
            servers.start("page", "--http", address)
            wait_until(lambda at=address: "etl" in get(at, "/")[1], "the page shows the group")  # type: ignore[misc]
        elif line.endswith("# runs on"):
            started = servers.start(*words)
            if "--from-beginning" in words:
                started.line(having="record")
            else:
                wait_until(lambda: len(servers.owners()) == 2, "the second one has a share")
        else:
            printed[line] = servers.call(*words)
    assert sum("clicks" in line for line in printed["zkcoord group reset-offsets etl --to-earliest --dry-run"]) == 8


@pytest.mark.parametrize(
    ("code", "prints"),
    [
        (python_block("README.md", "A plain Python consumer"), r"(?m)^clicks \d \d+ b'record \d+'$"),
        (
            python_block("consumers.md", "Membership for any program"),
            r"(?m)^clicks-\d 0 may be read now: True$",
        ),
    ],
    ids=["KafkaConsumer", "Consumer"],
)
def test_a_plain_python_example_does_what_its_page_says(code: str, prints: str, servers: Servers) -> None:
    servers.start("coordinator").line(having="serves")
    code = code.replace("localhost:2181", servers.zookeeper).replace("localhost:9092", servers.kafka)
    wait = "threading.Event().wait(3)"  # on a busy machine longer
    code = code.replace(
        wait, f"while sum(map(consumer.allowed, [*positions])) < {PARTITIONS}: threading.Event().wait(0.05)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(prints, done.stdout)) >= PARTITIONS, done.stdout
