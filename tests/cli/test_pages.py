"""The command lines of README and the pages on real servers, as they are printed but for addresses and folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.servers import Servers, running
from tests.cli.terminal import Terminal
from tests.integration.brokers import BOTH
from tests.metrics.test_endpoint import free_address, get
from tests.pages import shell_block
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.cli.main import cli

pytestmark = pytest.mark.kafka
PARTITIONS, RECORDS = 4, 40


@pytest.fixture(params=BOTH)
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Servers]:
    monkeypatch.chdir(tmp_path)
    with running(monkeypatch, request.param) as found:
        yield found


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Where the pages' addresses and folders are here."""
    written = ("127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466", "127.0.0.1:8080")
    found = {each: free_address() for each in written}
    found |= {f"coordinator-{n}:9464": found["127.0.0.1:9464"] for n in (1, 2)}
    return found | {
        "/var/lib/zkcoord/journal": str(tmp_path / "journal"),
        "/etc/zkcoord/token": str(tmp_path / "token"),
    }


def test_the_readmes_first_lines_work_on_fresh_servers(servers: Servers) -> None:
    export, create, coordinator, consume, describe = shell_block("README.md", "Start it")
    assert export == "export ZKCOORD_ZOOKEEPER=localhost:2181 ZKCOORD_BOOTSTRAP_SERVERS=localhost:9092"
    servers.play(create)
    servers.begin(coordinator).line("stdout", having="serves")
    first, second = servers.begin(consume), servers.begin(consume)
    wait_until(lambda: len(servers.owners()) == 2, "they share the partitions")
    servers.produce(PARTITIONS, RECORDS)
    for each in (first, second):
        each.line(having="record")
    assert sum("clicks" in line for line in servers.play(describe)) == PARTITIONS


def test_commands_of_readme_and_reference_work_on_a_running_group(
    servers: Servers, places: dict[str, str], tmp_path: Path
) -> None:
    servers.fill(PARTITIONS, RECORDS)
    with_metrics, consumer_with_metrics = shell_block("monitoring.md", "Metrics and health over HTTP")
    servers.begin(f"{with_metrics} --journal {tmp_path}/journal", places)
    etl = servers.begin(f"{consumer_with_metrics} --from-beginning", places)
    etl.line(having="record")

    _, limited, wildcard, describe, wait = shell_block("commands.md", "The command line")
    assert [*shell_block("consumers.md", "Wildcards")] == [wildcard]
    assert len(servers.play(limited)) == 5
    audit = servers.begin(f"{wildcard} --from-beginning")
    audit.line(having="record")
    servers.play(describe)
    servers.play(wait)

    activate, export, of_demo, another, coordinators, _ = shell_block("README.md", "Try it", 2)
    assert (activate, export.split()[0]) == (". .venv/bin/activate", "export")
    servers.begin("zkcoord consume --group demo --topic clicks --from-beginning").line(having="record")
    servers.play(of_demo)
    servers.begin(another).line(having="record")
    assert len(servers.play(coordinators)) == 2

    of_etl, of_all = shell_block("commands.md", "What happens now", 2)
    servers.begin(of_etl).line(having="etl")
    servers.begin(of_all).line(having="demo")
    (top,) = shell_block("commands.md", "What happens now")
    with closing(Terminal(*servers.words(top))) as terminal:
        terminal.until(lambda lines: any("etl" in line for line in lines))
        terminal.press("q")
        assert terminal.process.wait(PATIENCE_SECONDS) == 0

    once, always = shell_block("monitoring.md", "`zkcoord audit`")
    servers.play(once)
    servers.begin(always, places)
    wait_until(lambda: get(places["127.0.0.1:9466"], "/readyz")[0] == 200, "the audit has read")
    (doctor,) = shell_block("monitoring.md", "`zkcoord doctor`")
    assert any("quorum" in line for line in servers.play(doctor))
    (live,) = shell_block("monitoring.md", "Why did partition 7 stop for 800 ms?")
    assert len(servers.play(live, places)) > PARTITIONS
    assert (tmp_path / "etl.png").read_bytes().startswith(b"\x89PNG")
    (past,) = shell_block("monitoring.md", "Why did partition 7 stop for 800 ms?", 2)
    servers.play(past, {"/var/lib/zkcoord/journal": str(tmp_path / "journal")})

    _, pages = shell_block("page.md", "The page")
    servers.begin(pages, places)
    wait_until(lambda: "etl" in get(places["127.0.0.1:8080"], "/")[1], "the page shows the group")


def test_coordinators_with_pages_answer_as_the_page_says(
    servers: Servers, places: dict[str, str], tmp_path: Path
) -> None:
    address = places["127.0.0.1:8080"]
    token, acting = shell_block("page.md", "Actions")
    assert token.startswith("(umask 077; openssl rand ")
    (tmp_path / "token").write_text("a-token-of-this-test-0123456789abcdef", "utf-8")
    (tmp_path / "token").chmod(0o600)
    plain, _ = shell_block("page.md", "The page")
    (named,) = shell_block("page.md", "Who can see it", 2)
    for line in (plain, acting, named):
        running_on = servers.begin(line, places)
        wait_until(lambda: get(address, "/")[0] == 200, f"{line}: the page answers")
        servers.end(running_on)


def test_settings_from_the_pages_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [*shell_block("commands.md", "Settings"), *shell_block("commands.md", "Settings", 2)]
    (tmp_path / "zkcoord.toml").write_text("\n".join(files), "utf-8")
    monkeypatch.setenv("ZKCOORD_CONFIG", str(tmp_path / "zkcoord.toml"))
    done = CliRunner().invoke(cli, ["config", "show", "--output", "json"])
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    found = {each["setting"]: each["value"] for each in shown if each["source"] == "file"}
    assert found == {
        "zookeeper": "zk1:2181,zk2:2181,zk3:2181",
        "bootstrap-servers": "broker1:9092",
        "session-timeout-ms": 9000,
        "journal": "/var/lib/zkcoord/journal",
    }
