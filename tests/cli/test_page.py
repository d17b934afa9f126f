"""`zkcoord page`, and the page beside a coordinator, which starts it, keeps it running and ends it."""

from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.program import Run, Spawn
from tests.integration.world import World
from tests.metrics.test_endpoint import free_address, get
from tests.waiting import wait_until
from zkcoord.page import beside
from zkcoord.page.guard import WRONG_MAX

pytestmark = pytest.mark.zookeeper
TOKEN = "a-token-of-this-test"


def post(address: str, client: str) -> int:
    """Try a wrong token, with a header as of a proxy. Returns the status."""
    headers = {"X-Forwarded-For": client}
    asked = urllib.request.Request(f"http://{address}/groups/g/pause", b"token=wrong", headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=30)
    refused.value.close()
    return refused.value.code


def children(process: int) -> list[int]:
    """The processes that this one has started and that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def test_a_coordinator_serves_the_page_with_timelines_and_ends_it_with_itself(
    chroot: str, spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, file = free_address(), tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    monkeypatch.setenv("ZKCOORD_PAGE_HTTP_TOKEN_FILE", str(file))  # of `zkcoord page`, not of this page
    coordinator = spawn("coordinator", "--zookeeper", chroot, "--http", address, "--log-format", "json")
    wait_until(lambda: get(address, "/")[0] == 200, "the page is served")
    with World(chroot) as world:
        world.topic("clicks", 2)
        world.join("g", "clicks")
        wait_until(lambda: "The last 2 of 2" in get(address, "/groups/g")[1], "it has the timeline")
    assert get(address, "/groups/g/pause")[0] == 403
    (page,) = children(coordinator.process.pid)
    assert os.getpriority(os.PRIO_PROCESS, page) > os.getpriority(os.PRIO_PROCESS, coordinator.process.pid)

    os.kill(page, signal.SIGKILL)
    coordinator.line("stderr", having='"event":"page_ended"')
    wait_until(lambda: children(coordinator.process.pid) not in ([], [page]), "it is started again")
    wait_until(lambda: get(address, "/")[0] == 200, "the page is served again")

    coordinator.process.send_signal(signal.SIGTERM)
    assert coordinator.end() == 0
    wait_until(lambda: get(address, "/")[0] == 0, "the page has ended")


def test_the_page_ends_when_its_coordinator_is_killed(chroot: str, spawn: Spawn) -> None:
    address = free_address()
    coordinator = spawn("coordinator", "--zookeeper", chroot, "--http", address)
    wait_until(lambda: get(address, "/")[0] == 200, "the page is served")
    coordinator.process.kill()
    wait_until(lambda: get(address, "/")[0] == 0, "the page has ended")


def test_the_page_by_itself_with_a_token(chroot: str, spawn: Spawn, tmp_path: Path) -> None:
    file, address = tmp_path / "token", free_address()
    file.write_text(TOKEN)
    file.chmod(0o600)
    with World(chroot) as world:
        world.coordinate()
        world.topic("clicks", 2)
        world.join("g", "clicks")
        page = spawn("page", "--zookeeper", chroot, "--http", address, "--http-token-file", str(file))
        assert page.line() == f"the page is at http://{address}/"
        wait_until(lambda: "Pause …" in get(address, "/groups/g")[1], "it offers actions")
        for n in range(WRONG_MAX):
            assert post(address, f"10.0.0.{n}") == 403
        assert post(address, "10.0.1.1") == 429  # who says to be somebody else is not believed
        page.process.send_signal(signal.SIGTERM)
        assert page.end() == 0


def test_unservable_pages_are_refused_before_anything_begins(
    chroot: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        result = run(*words, "--zookeeper", chroot)
        assert result.exit_code == 2
        return result.stderr

    file = tmp_path / "token"
    file.write_text("short")
    file.chmod(0o600)
    for command in ("coordinator", "page"):
        assert "error: Invalid value for '--http': '8080' is no address: give HOST:PORT" in refused(
            command, "--http", "8080"
        )
        assert "at least 16" in refused(command, "--http", free_address(), "--http-token-file", str(file))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            assert f"{address} for the page (Address already in use): give another" in refused(
                command, "--http", address
            )
        with monkeypatch.context() as patch:
            patch.setattr(beside, "find_spec", lambda name: None)
            assert "pip install 'zkcoord[web]'" in refused(command, "--http", free_address())
    assert "error: Invalid value for '--from': 'somewhere' is no address: give HOST:PORT" in refused(
        "page", "--from", "somewhere"
    )
    for option in (["--http-token-file", str(file)], ["--http-name", "groups.example.org"]):
        assert "give --http HOST:PORT, too" in refused("coordinator", *option)
