"""The tutorial's commands, examples in plain Python and the commands of the compose file, on real servers.

They run as they are printed, but for addresses.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.kafka.topics import create_topic
from tests.metrics.test_compose import OURS, SERVICES
from tests.metrics.test_endpoint import free_address, get
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorial.md"
BY_HAND = ("scripts/demo", ". .venv/bin/activate", "docker ")
"""What the tutorial has people do beside calling zkcoord: the servers here take the demo's place."""
PARTITIONS = 8
RECORDS = 20 * PARTITIONS


class Servers:
    """ZooKeeper and a broker with the topic clicks, and programs that end with them."""

    def __init__(self, zookeeper: str, kafka: str, stack: ExitStack) -> None:
        self.zookeeper, self.kafka, self._stack = zookeeper, kafka, stack

    def start(self, *words: str) -> Program:
        """Start `zkcoord`; at the end it is asked to end, and ends with 0."""
        program = Program(*words)
        self._stack.callback(program.close)
        self._stack.callback(self._end, program)
        return program

    @staticmethod
    def _end(program: Program) -> None:
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0

    def call(self, *words: str) -> list[str]:
        """Run `zkcoord` to its end; returns what it printed."""
        program = Program(*words)
        try:
            printed = program.rest()
            assert program.end() == 0, [*printed, *program.rest("stderr")]
        finally:
            program.close()
        return printed


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    with ExitStack() as running:
        zookeeper = running.enter_context(EmbeddedZooKeeper(fsync=False)).hosts
        kafka = running.enter_context(EmbeddedKafka(zookeeper)).bootstrap_servers
        create_topic(AdminClient({"bootstrap.servers": kafka}), "clicks", PARTITIONS)
        producer = Producer({"bootstrap.servers": kafka})
        for number in range(RECORDS):
            producer.produce("clicks", f"record {number}", partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        monkeypatch.setenv("ZKCOORD_ZOOKEEPER", zookeeper)
        monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", kafka)
        with ExitStack() as programs:
            yield Servers(zookeeper, kafka, programs)


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
                wait_until(lambda: len(owners(servers)) == 2, "the second one has a share")
        else:
            printed[line] = servers.call(*words)
    assert sum("clicks" in line for line in printed["zkcoord group reset-offsets etl --to-earliest --dry-run"]) == 8


def owners(servers: Servers) -> set[str]:
    """The consumers that own something of the group."""
    lines = servers.call("group", "describe", "etl", "--wait", "stable")
    return {found[1] for line in lines if (found := re.search(r"(\S+)-0$", line.rstrip()))}


def test_the_programs_of_the_compose_file_work_together(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"zookeeper:2181": servers.zookeeper, "kafka:9092": servers.kafka}
    metrics = {name: free_address() for name, each in OURS.items() if "--metrics" in each["command"]}
    places |= {f"{name}:9464": address for name, address in metrics.items()}
    page = free_address()
    for name, service in OURS.items():
        for variable, value in service["environment"].items():
            monkeypatch.setenv(variable, places.get(value, value))
        here = {**places, ":8080": page, ":9464": metrics.get(name, "")}
        servers.start(*[here.get(word, word) for word in service["command"]])
    made = next(word for word in SERVICES["topic"]["command"] if word.startswith("--partitions="))
    assert made == f"--partitions={PARTITIONS}"
    wait_until(lambda: len(owners(servers)) == 2, "both consumers have a share")
    assert [get(address, "/readyz")[0] for address in metrics.values()] == [200] * 4


@pytest.mark.parametrize(
    ("page", "heading", "prints"),
    [
        ("README.md", "### A plain Python consumer", r"(?m)^clicks \d \d+ b'record \d+'$"),
        ("docs/consumers.md", "## Membership for any program", r"(?m)^clicks-\d 0 may be read now: True$"),
    ],
)
def test_a_plain_python_example_does_what_its_page_says(page: str, heading: str, prints: str, servers: Servers) -> None:
    servers.start("coordinator").line(having="serves")
    text = (ROOT / page).read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text[text.index(heading) :], re.DOTALL)[:1]
    code = code.replace("localhost:2181", servers.zookeeper).replace("localhost:9092", servers.kafka)
    wait = "threading.Event().wait(3)"  # on a busy machine longer
    code = code.replace(
        wait, f"while sum(map(consumer.allowed, [*positions])) < {PARTITIONS}: threading.Event().wait(0.05)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(prints, done.stdout)) >= PARTITIONS, done.stdout
