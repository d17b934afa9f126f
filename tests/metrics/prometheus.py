"""Prometheus itself, as Debian's package `prometheus` has it: it scrapes for a test, and answers queries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.test_endpoint import free_address, get
from tests.waiting import wait_until

DEPLOYED = Path(__file__).parents[2] / "deploy/prometheus"
INTERVAL = "interval: 15s"


def program(name: str) -> str:
    """Where a program of Debian's package `prometheus` is; without it the test is skipped, which CI does not allow."""
    found = shutil.which(name)
    if found is None:
        assert "CI" not in os.environ, f"scripts/test installs {name} (Debian: prometheus), as root"
        pytest.skip(f"{name} is not here: install Debian's package prometheus")
    return found


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API; an error of a query fails the test with what it says."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[Any]:
        """The series that an instant query finds now."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def health(self) -> dict[str, str]:
        """How the last scrape of each target went: "up", or what went wrong."""
        targets = self.ask("targets", state="active")["activeTargets"]
        return {each["labels"]["instance"]: each["lastError"] or each["health"] for each in targets}


@contextmanager
def scraping(folder: Path, places: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration and rules in deploy/, but with other addresses, and each second."""
    binary, address = program("prometheus"), free_address()
    text = (DEPLOYED / "prometheus.yml").read_text("utf-8")
    assert text.count(INTERVAL) == 1 + text.count("evaluation_interval") == 2
    for written, here in places.items():
        text = text.replace(written, here)
    folder.mkdir()
    (folder / "prometheus.yml").write_text(text.replace(INTERVAL, "interval: 1s"), "utf-8")
    shutil.copy(DEPLOYED / "alerts.yml", folder)
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", "--log.level=warn"]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen([binary, *words, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            wait_until(lambda: running.poll() is not None or get(address, "/-/ready")[0] == 200, "Prometheus is ready")
            assert running.poll() is None, (folder / "log").read_text("utf-8")
            yield Prometheus(address)
        finally:
            running.terminate()
            running.wait(60)
