"""ZooKeeper 3.4, which old deployments have: it has no multi-reads, no watches that stay, and no word `dirs`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from click.testing import CliRunner, Result

from tests.integration.world import World, named
from tests.waiting import wait_until
from zkcoord.cli.main import cli
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.artifacts import kafka_jars
from zkcoord.embedded.zookeeper import MAIN

pytestmark = [pytest.mark.zookeeper, pytest.mark.legacy]


class ZooKeeper34(EmbeddedZooKeeper):
    """The server 3.4.10, whose jar Kafka 1.1.1 has."""

    def program(self) -> tuple[str, Sequence[object]]:
        """Return its main class, and its class path."""
        return MAIN, kafka_jars("1.1.1")


@pytest.fixture
def world() -> Iterator[World]:
    with ZooKeeper34(max_session_timeout_ms=20_000, fsync=False) as server, World(server.hosts) as world:
        world.topic("clicks", 4)
        world.put("/brokers/ids/1", b"{}")
        yield world


def run(world: World, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--zookeeper", world.zookeeper], prog_name="zkcoord")


def test_a_group_is_coordinated_held_and_deleted_and_the_doctor_finds_no_fault(world: World) -> None:
    world.coordinate()
    first = world.join("g", "clicks")
    wait_until(lambda: first.held() == named("clicks", 0, 1, 2, 3), "the first one reads all")
    second = world.join("g", "clicks")
    wait_until(lambda: (len(first.held()), len(second.held())) == (2, 2), "both read")
    assert run(world, "group", "describe", "g", "--wait", "stable").exit_code == 0
    assert run(world, "group", "pause", "g").stdout == "group g: paused\n"
    assert first.held() + second.held() == []
    assert run(world, "group", "resume", "g").exit_code == 0
    second.consumer.stop()
    wait_until(lambda: len(first.held()) == 4, "the one that stayed reads all again")

    doctor = run(world, "doctor", "--output", "json")

    found = [json.loads(line) for line in doctor.stdout.splitlines()]
    assert (doctor.exit_code, [each["what"] for each in found if each["severity"] == "ERR"]) == (0, [])
    assert any(each["evidence"].startswith("3.4.10-") for each in found), found
