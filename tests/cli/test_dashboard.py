"""The tutorial's way to a dashboard: its steps are counted, and its last section is played.

Compose's part is played by what its file says: each of its programs as a process with the file's command and variables,
Prometheus with the file's configuration and rules, and the dashboard's queries asked of that Prometheus. What only
containers show (images, networks, Grafana's drawing) is not.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Program
from tests.cli.servers import Servers, running
from tests.metrics.prometheus import Prometheus, scraping
from tests.metrics.test_compose import OURS, SERVICES, SETTING
from tests.metrics.test_deploy import DASHBOARD
from tests.metrics.test_endpoint import free_address, get
from tests.pages import ROOT, Block, blocks, shell_block
from tests.waiting import wait_until

TUTORIAL = ROOT / "docs/tutorial.md"
COMPOSE = ["docker", "compose", "-f", "deploy/compose.yaml"]
ONLY_WITH = {
    "Spark: batches per minute": "a Spark consumer",
    "Spark: where batches spend their time": "a Spark consumer",
    "Problems": "a problem",
}
"""Panels that are empty where all is well and nobody runs Spark: what they wait for."""


class Composed:
    """The programs of the compose file, as processes on the test's servers."""

    def __init__(self, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
        self._servers, self._monkeypatch = servers, monkeypatch
        self._running: dict[str, Program] = {}
        served = {name: free_address() for name, each in OURS.items() if "--metrics" in each["command"]}
        self.metrics = {f"{name}:9464": address for name, address in served.items()}
        self.page = free_address()

    def up(self) -> None:
        """Start all of them."""
        places = {"zookeeper:2181": self._servers.zookeeper, "kafka:9092": self._servers.kafka, **self.metrics}
        for name, service in OURS.items():
            for variable, value in service["environment"].items():
                self._monkeypatch.setenv(variable, places.get(value, value))
            here = {**places, ":8080": self.page, ":9464": self.metrics.get(f"{name}:9464", "")}
            self._running[name] = self._servers.start(*[here.get(word, word) for word in service["command"]])

    def exec(self, name: str, program: str, *words: str) -> list[str]:
        """Call zkcoord as in a running container; returns what it printed."""
        assert (program, self._running[name].process.poll()) == ("zkcoord", None)
        return self._servers.call(*words)

    def down(self) -> None:
        """End all of them; each ends with 0."""
        for each in self._running.values():
            self._servers.end(each)


def of_compose(line: str, verb: str) -> list[str]:
    """The words behind the verb of a printed line."""
    words = shlex.split(line)
    assert words[: len(COMPOSE) + 1] == [*COMPOSE, verb]
    return words[len(COMPOSE) + 1 :]


def panels() -> dict[str, list[str]]:
    """The queries of each panel, as Grafana asks them for all groups with this interval of scrapes."""
    return {
        panel["title"]: [
            each["expr"].replace("$__rate_interval", "15s").replace("$group", ".*") for each in panel["targets"]
        ]
        for panel in DASHBOARD["panels"]
    }


def empty(prometheus: Prometheus) -> set[str]:
    """The panels of which no query finds a series. Each query is asked: one that Prometheus refuses fails."""
    found: dict[str, list[Any]] = {}
    for title, queries in panels().items():
        found[title] = [series for query in queries for series in prometheus.query(query)]
    return {title for title, series in found.items() if not series}


@pytest.mark.kafka
def test_the_tutorials_dashboard_has_data_in_each_panel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    up, describe = shell_block("tutorial.md", "7. The dashboard")
    (down,) = shell_block("tutorial.md", "7. The dashboard", 2)
    assert of_compose(up, "up") == ["--build", "--detach"]
    assert of_compose(down, "down") == ["--volumes"]
    (made,) = [word for word in SERVICES["topic"]["command"] if word.startswith("--partitions=")]
    partitions = int(made.partition("=")[2])
    with running(monkeypatch) as servers:
        servers.fill(partitions, records=20 * partitions)
        composed = Composed(servers, monkeypatch)
        composed.up()
        assert sum("clicks" in line for line in composed.exec(*of_compose(describe, "exec"))) == partitions
        wait_until(lambda: len(servers.owners()) == 2, "both consumers have a share")
        told = composed.metrics.values()
        wait_until(lambda: [get(address, "/readyz")[0] for address in told] == [200] * 4, "all four are ready")
        wait_until(lambda: "etl" in get(composed.page, "/")[1], "the page shows the group")
        with scraping(tmp_path / "prometheus", composed.metrics) as prometheus:
            wait_until(lambda: {*prometheus.health().values()} == {"up"}, "all targets are scraped")
            assert {*prometheus.health()} == {*composed.metrics.values()}
            wait_until(lambda: empty(prometheus) == {*ONLY_WITH}, "each panel has data")
            assert prometheus.ask("alerts")["alerts"] == []
        composed.down()


def commands() -> list[tuple[Block, str]]:
    """Each command that the tutorial prints, in order."""
    return [(block, line) for block in blocks(TUTORIAL) for line in block.lines]


def test_the_tutorial_counts_the_steps_to_a_group_a_reset_and_a_dashboard() -> None:
    printed = [line for _, line in commands()]
    group = printed.index("zkcoord group describe etl --wait stable") + 1
    reset = printed.index("zkcoord group reset-offsets etl --to-earliest --stop-first") + 1
    (page,) = [number for number, line in enumerate(printed, 1) if line.startswith("zkcoord page ")]
    dashboard = printed.index(shlex.join([*COMPOSE, "up", "--build", "--detach"])) + 1
    said = re.search(
        r"The (\d+)th command shows a group of your own, the (\d+)th resets it, the (\d+)th starts the page, "
        r"and the (\d+)th the dashboard",
        TUTORIAL.read_text("utf-8"),
    )
    assert said is not None
    assert [int(each) for each in said.groups()] == [group, reset, page, dashboard]


def test_the_tutorials_page_leaves_composes_ports_free() -> None:
    taken = {
        SETTING.sub(r"\2", port).rpartition(":")[0] for each in SERVICES.values() for port in each.get("ports", [])
    }
    assert "127.0.0.1:8080" in taken
    (line,) = shell_block("tutorial.md", "6. The page")
    assert [word for word in shlex.split(line, comments=True) if word in taken] == []
