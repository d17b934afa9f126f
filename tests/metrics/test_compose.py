"""deploy/compose.yaml: its services fit each other, the command line, and the files that they are given."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.calls import parse_call
from zkcoord.cli.main import cli
from zkcoord.embedded.artifacts import KAFKA_VERSION
from zkcoord.metrics.address import parse_address

DEPLOY = Path(__file__).parents[2] / "deploy"
FILE = DEPLOY / "compose.yaml"
COMPOSE = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"] == "${ZKCOORD_IMAGE:-zkcoord}"}
SETTING = re.compile(r"\$\{([A-Z_]+):-([^}]+)\}")
ADDRESS = re.compile(r"\b([a-z][a-z0-9-]*):(\d{4,5})\b")


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """What a service is given, and where it finds it."""
    return [(each.split(":")[0], each.split(":")[1]) for each in service.get("volumes", [])]


def listening(service: str) -> set[int]:
    """The ports at which a service listens: by its options, or as its image is known to."""
    known = {"zookeeper": {2181}, "kafka": {9092}, "prometheus": {9090}, "grafana": {3000}}
    words = SERVICES[service].get("command", [])
    options = [after for word, after in pairwise(words) if word in ("--metrics", "--http")]
    return known.get(service, set()) | {parse_address(each)[1] for each in options}


def test_it_is_what_the_specification_of_compose_allows() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_two_of_each_program_and_what_shows_them() -> None:
    shown = {"page", "prometheus", "grafana"}
    programs = {"coordinator-1", "coordinator-2", "consumer-1", "consumer-2"}
    assert {*SERVICES} == {"zookeeper", "kafka", "topic", "producer", *programs, *shown}
    assert {*OURS} == {*programs, "page"}


@pytest.mark.parametrize("name", OURS)
def test_zkcoord_takes_each_command_and_each_variable(name: str) -> None:
    (command,) = parse_call(OURS[name]["command"])
    assert command == name.partition("-")[0].replace("consumer", "consume")
    known = {option.envvar for option in cli.commands[command].params}
    assert {*OURS[name]["environment"]} <= known


def test_every_address_leads_to_a_service_that_listens_there() -> None:
    prometheus = (DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8")
    source = (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text(encoding="utf-8")
    written = [
        str(value) for each in SERVICES.values() for key in ("command", "environment") for value in [each.get(key)]
    ]
    named = {(host, int(port)) for text in [*written, prometheus, source] for host, port in ADDRESS.findall(text)}
    scraped = {("coordinator-1", 9464), ("coordinator-2", 9464), ("consumer-1", 9464), ("consumer-2", 9464)}
    assert scraped | {("zookeeper", 2181), ("kafka", 9092), ("prometheus", 9090)} == named
    assert [(host, port) for host, port in sorted(named) if port not in listening(host)] == []


def test_published_ports_are_listened_at_for_this_machine_only() -> None:
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert {*published} == {"page", "prometheus", "grafana"}
    for name, ports in published.items():
        (port,) = ports
        address, _, inside = port.rpartition(":")
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}", address)
        assert int(inside) in listening(name)


def test_mounted_files_exist() -> None:
    given = [source for each in SERVICES.values() for source, _ in mounts(each)]
    assert all((DEPLOY / source).exists() for source in given if source.startswith("."))
    assert {source for source in given if not source.startswith(".")} == {*COMPOSE["volumes"]}
    needed = [name for each in SERVICES.values() for name in each.get("depends_on", [])]
    assert {*needed} <= {*SERVICES}


def test_prometheus_and_grafana_find_rules_source_and_dashboard() -> None:
    assert ("./prometheus", "/etc/prometheus") in mounts(SERVICES["prometheus"])
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/zkcoord.yml").read_text())["providers"]
    grafana = SERVICES["grafana"]
    assert ("./grafana/provisioning", "/etc/grafana/provisioning") in mounts(grafana)
    dashboard = dict(mounts(grafana))["./grafana/zkcoord.json"]
    assert dashboard == grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert str(Path(dashboard).parent) == provider["options"]["path"]


def test_every_image_is_a_setting_with_a_default_and_the_brokers_are_those_of_the_tests() -> None:
    images = {name: SETTING.fullmatch(each["image"]) for name, each in SERVICES.items()}
    assert [name for name, found in images.items() if found is None] == []
    assert images["kafka"][2] == f"apache/kafka:{KAFKA_VERSION}"  # type: ignore[index]
    build = SERVICES["coordinator-1"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert build["args"] == {"PYTHON_IMAGE": f"${{PYTHON_IMAGE:-{base}}}"}


def test_the_producer_and_the_consumers_have_the_topic_that_is_made() -> None:
    made = [word for word in SERVICES["topic"]["command"] if word.startswith("--topic=")]
    assert made == [word for word in SERVICES["producer"]["command"] if word.startswith("--topic=")]
    for name in ("consumer-1", "consumer-2"):
        words = OURS[name]["command"]
        assert f"--topic={words[words.index('--topic') + 1]}" in made
