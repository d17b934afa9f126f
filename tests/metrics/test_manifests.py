"""The manifests in deploy/: their command lines are ones that zkcoord takes, their probes ask paths that it serves."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.cli.calls import parse_call
from tests.metrics.test_endpoint import free_address, get
from zkcoord.metrics.endpoint import Endpoint, Part

DEPLOY = Path(__file__).parents[2] / "deploy"
OBJECTS = [*yaml.safe_load_all((DEPLOY / "kubernetes/coordinator.yaml").read_text(encoding="utf-8"))]
DEPLOYMENT, BUDGET, SERVICE = OBJECTS
UNIT = DEPLOY / "systemd/zkcoord-coordinator.service"
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


@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version()])
def test_kubernetes_takes_every_object(version: str) -> None:
    for each in OBJECTS:
        kubernetes_validate.validate(each, version, strict=True)


def test_the_check_of_objects_finds_a_key_that_does_not_exist() -> None:
    wrong = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_the_service_leads_to_what_the_coordinators_serve() -> None:
    assert SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    (port,) = SERVICE["spec"]["ports"]
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports[port["targetPort"]] == port["port"]


def test_the_image_starts_a_coordinator_with_extras_that_exist() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert parse_call(json.loads(command)) == ("coordinator",)
    setup = (DEPLOY.parent / "setup.py").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[([a-z,]+)\]'", DOCKERFILE)
    assert all(f'"{each}":' in setup for each in extras.split(","))


def test_the_unit_starts_a_coordinator() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT, encoding="utf-8")
    assert parse_call(shlex.split(unit["Service"]["ExecStart"])[1:]) == ("coordinator",)
    assert unit["Service"]["Restart"] == "always"


def complaints(text: str, folder: Path) -> list[str]:
    """What systemd says of a unit whose program is there."""
    unit = folder / UNIT.name
    unit.write_text(text.replace("/opt/zkcoord/bin/zkcoord", sys.executable), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze (Debian's systemd)")
def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    assert complaints(text, tmp_path) == []
    (found,) = complaints(text.replace("Restart=", "Restrat="), tmp_path)
    assert "Restrat" in found
