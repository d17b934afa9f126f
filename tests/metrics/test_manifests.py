"""The manifests in deploy/: their command lines are ones that zkcoord takes, their probes ask paths that it serves."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from tests.cli.calls import parse_call
from tests.metrics.test_endpoint import free_address, get
from zkcoord.metrics.endpoint import Endpoint, Part

DEPLOY = Path(__file__).parents[2] / "deploy"
DEPLOYMENT, BUDGET = yaml.safe_load_all((DEPLOY / "kubernetes/coordinator.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def container() -> dict[str, Any]:
    """The one container of the deployment."""
    (found,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_kubernetes_starts_a_coordinator_and_asks_what_it_serves() -> None:
    assert parse_call(container()["args"]) == ("coordinator",)
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    address = free_address()
    endpoint, part = Endpoint.at(address), Part("coordinator", lambda: None, lambda: None)
    endpoint.add(part)
    try:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container()[probe]["httpGet"]
            assert get(address, asked["path"])[0] == 200
            assert f":{ports[asked['port']]}" in container()["args"]
    finally:
        endpoint.remove(part)
    assert container()["livenessProbe"]["httpGet"]["path"] == "/healthz"  # ZooKeeper away is no reason to restart


def test_the_selectors_fit_and_a_standby_stays() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels == BUDGET["spec"]["selector"]["matchLabels"]
    assert BUDGET["spec"]["minAvailable"] < DEPLOYMENT["spec"]["replicas"]


def test_the_image_starts_a_coordinator_with_extras_that_exist() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert parse_call(json.loads(command)) == ("coordinator",)
    setup = (DEPLOY.parent / "setup.py").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[([a-z,]+)\]'", DOCKERFILE)
    assert all(f'"{each}":' in setup for each in extras.split(","))


def test_the_unit_starts_a_coordinator() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd/zkcoord-coordinator.service", encoding="utf-8")
    assert parse_call(shlex.split(unit["Service"]["ExecStart"])[1:]) == ("coordinator",)
    assert unit["Service"]["Restart"] == "always"
