"""deploy/compose.yaml, by the lines of the page: its own coordinators and consumers in containers, with stand-ins for
the images of others. Grafana is left out, by naming the other services."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import docker
import pytest

from tests.containers.conftest import teller
from tests.containers.image import ANSWER_S
from tests.containers.stand_ins import stand_ins
from tests.containers.test_program_image import python_image
from tests.metrics.prometheus import Prometheus
from tests.metrics.test_compose import SERVICES
from tests.metrics.test_endpoint import get
from tests.pages import ROOT, shell_block
from tests.waiting import wait_until
from zkcoord.embedded.server import LOOPBACK, free_ports

pytestmark = [pytest.mark.docker, pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

COMPOSE = ["docker", "compose", "-f", "deploy/compose.yaml"]
PROJECT, IMAGE = "zkcoord-test", "zkcoord-test-composed:1"
BUILD_S = 1_200  # pip fetches; a loaded machine
STARTS_S = 300.0
PARTITIONS = 8
CHOSEN = [name for name in SERVICES if name != "grafana"]
PLUGIN = (
    "the engine has no compose plugin: Docker's package docker-compose-plugin, or go install github.com/docker/compose"
)


class Compose:
    """The project, whose lines are called as the pages print them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def call(self, line: str, *more: str) -> str:
        """Run a line in the checkout, which must succeed; returns what it printed on standard output."""
        done = self._run([*shlex.split(line), *more])
        assert done.returncode == 0, f"{line}: {done.stdout[-3_000:]}{done.stderr[-3_000:]}"
        return done.stdout

    def compose(self, *words: str) -> str:
        """Run a command of compose, which must succeed."""
        return self.call(shlex.join(COMPOSE), *words)

    def told(self, service: str, *words: str) -> list[dict[str, Any]]:
        """The objects that `zkcoord` prints in a service's container; none while it fails."""
        done = self._run([*COMPOSE, "exec", service, "zkcoord", *words, "--output", "json"])
        return [] if done.returncode else [json.loads(line) for line in done.stdout.splitlines()]

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, **self.settings, "COMPOSE_PROJECT_NAME": PROJECT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )

    def serving(self, seen_by: str) -> str:
        """The coordinator that serves, by the name of its host; "" while none does."""
        listed = self.told(seen_by, "coordinators", "list")
        return next((each["host"] for each in listed if each["state"] == "serving"), "")


@pytest.fixture(scope="module")
def compose(request: pytest.FixtureRequest) -> Iterator[Compose]:
    """What `up` needs: images in the settings of the file, and free ports. Nothing of it is left."""
    found = shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    )
    if not found or found.returncode:
        assert "CI" not in os.environ, PLUGIN
        pytest.skip(PLUGIN)
    client, say = docker.from_env(timeout=ANSWER_S), teller(request.config)
    page, prometheus = map(str, free_ports(2))
    images = {**stand_ins(client, say), "PYTHON_IMAGE": python_image(client, say), "ZKCOORD_IMAGE": IMAGE}
    project = Compose({**images, "PAGE_PORT": page, "PROMETHEUS_PORT": prometheus})
    try:
        yield project
    finally:
        project.compose("down", "--volumes", "--timeout", "5")
        client.images.remove(IMAGE, force=True)
        client.close()


def test_the_file_comes_up_a_record_is_read_and_the_other_coordinator_takes_over(compose: Compose) -> None:
    up, describe = shell_block("monitoring.md", "All of it in containers")
    assert [up, describe] == shell_block("tutorial.md", "7. The dashboard")
    compose.call(up, *CHOSEN)

    wait_until(lambda: compose.serving("coordinator-1"), "a coordinator serves", STARTS_S)
    first = compose.serving("coordinator-1")
    wait_until(lambda: members(compose, first) == {"consumer-1", "consumer-2"}, "both consumers are there", STARTS_S)
    shown = compose.call(describe)
    assert sum("clicks" in line for line in shown.splitlines()) == PARTITIONS, shown
    wait_until(lambda: read(compose, first) > 0, "a record is read and committed", STARTS_S)
    for name in ("consumer-1", "consumer-2"):
        assert "clicks" in compose.compose("logs", "--no-log-prefix", name)

    page = f"{LOOPBACK}:{compose.settings['PAGE_PORT']}"
    wait_until(lambda: "etl" in get(page, "/")[1], "the page shows the group", STARTS_S)
    scraped = Prometheus(f"{LOOPBACK}:{compose.settings['PROMETHEUS_PORT']}")
    wait_until(lambda: [*scraped.health().values()] == ["up"] * 4, "Prometheus has all four", STARTS_S)

    other = {"coordinator-1": "coordinator-2", "coordinator-2": "coordinator-1"}[first]
    compose.compose("stop", first)
    (ended,) = map(json.loads, compose.compose("ps", "--all", "--format", "json", first).splitlines())
    assert (ended["State"], ended["ExitCode"]) == ("exited", 0)
    wait_until(lambda: compose.serving(other) == other, "the other one serves", STARTS_S)
    before = read(compose, other)
    wait_until(lambda: read(compose, other) > before, "the consumers read on", STARTS_S)

    (down,) = shell_block("tutorial.md", "7. The dashboard", 2)
    compose.call(down)
    assert compose.compose("ps", "--all", "--quiet") == ""


def members(compose: Compose, service: str) -> set[str]:
    """The hosts of the consumers that own something."""
    partitions = [each for group in compose.told(service, "group", "describe", "etl") for each in group["partitions"]]
    owners = " ".join(each["consumer"] for each in partitions if each["alive"])
    return {name for name in ("consumer-1", "consumer-2") if name in owners}


def read(compose: Compose, service: str) -> int:
    """How many records the group has committed."""
    described = compose.told(service, "group", "describe", "etl")
    return sum(each["current_offset"] or 0 for group in described for each in group["partitions"])
