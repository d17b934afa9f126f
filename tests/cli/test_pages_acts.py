"""Command lines of the pages that change a group, its offsets or its record, on real servers: as they are printed, but
for addresses, moments and files. Each is held to what its page says that it does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kazoo.client import KazooClient

from tests.cli.program import PATIENCE_SECONDS, Program
from tests.cli.servers import Servers, running
from tests.cli.terminal import Terminal
from tests.pages import ROOT, shell_block
from tests.waiting import wait_until
from zkcoord.cli.main import cli
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]
PARTITIONS, EARLIER, LATER = 4, 10, 5
"""Of the topic: so many partitions, and in each so many records from before the moment of the reset, and since."""
HOUR_MS = 3_600_000
EVERYTHING = PARTITIONS * (EARLIER + LATER)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Servers]:
    """A topic whose first records are two hours old."""
    monkeypatch.chdir(tmp_path)
    with running(monkeypatch) as found:
        found.fill(PARTITIONS, 0)
        producer, now_ms = Producer({"bootstrap.servers": found.kafka}), int(time.time() * 1000)
        for number in range(EARLIER + LATER):
            for partition in range(PARTITIONS):
                at_ms = now_ms - (2 * HOUR_MS if number < EARLIER else 0)
                producer.produce("clicks", f"record {number}", partition=partition, timestamp=at_ms)
        assert producer.flush(60) == 0
        yield found


@pytest.fixture
def tree(servers: Servers) -> Iterator[KazooClient]:
    client = KazooClient(servers.zookeeper)
    client.start(60)
    yield client
    client.stop()
    client.close()


def offsets(tree: KazooClient) -> dict[int, int]:
    """Those of the group, by partition."""
    nodes = {each: node(each) for each in range(PARTITIONS)}
    return {each: int(tree.get(path)[0]) for each, path in nodes.items() if tree.exists(path)}


def node(partition: int) -> str:
    """Where the group's offset stands."""
    return DRAFT.offset("etl", TopicPartition("clicks", partition))


def read_all(servers: Servers, tree: KazooClient) -> Program:
    """A consumer of the group that has read and committed everything."""
    consumer = servers.start("consume", "--group", "etl", "--topic", "clicks", "--from-beginning")
    whole = dict.fromkeys(range(PARTITIONS), EARLIER + LATER)
    wait_until(lambda: offsets(tree) == whole, "all is committed")
    return consumer


def table(lines: list[str]) -> list[list[str]]:
    """The words of each line that begins with the topic."""
    return [line.split() for line in lines if line.startswith("clicks")]


def test_offsets_are_compared_and_reset_as_the_pages_print_it(servers: Servers, tree: KazooClient) -> None:
    servers.start("coordinator").line(having="serves")
    consumer = read_all(servers, tree)

    of_etl, of_all = shell_block("commands.md", "Offsets in both stores")
    assert len(table(servers.play(of_etl))) == PARTITIONS
    servers.play(of_all)
    assert [*Path("offsets.parquet").rglob("*.parquet")] or Path("offsets.parquet").is_file()

    dry_run, stop_first, shift = shell_block("offsets.md", "Reset")
    moment = datetime.fromtimestamp(time.time() - HOUR_MS / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    places = {"2026-11-01T06:00:00": moment}
    planned = table(servers.play(dry_run, places))
    assert offsets(tree) == dict.fromkeys(range(PARTITIONS), EARLIER + LATER), "a dry run moves nothing"
    assert table(servers.play(stop_first, places)) == planned
    for _ in range(EVERYTHING):
        consumer.line(having="record")
    again = [consumer.line(having="record") for _ in range(PARTITIONS * LATER)]
    assert [line for line in again if re.search(r"record [0-9]\b", line)] == [], "only records since that moment"

    refused = CliRunner().invoke(cli, servers.words(shift))
    assert (refused.exit_code, "--stop-first" in refused.stderr) == (2, True), "consumers read the group"
    servers.end(consumer)
    servers.play(shift)
    assert offsets(tree) == {0: 0, 1: 0, 2: EARLIER + LATER, 3: EARLIER + LATER}, "the log begins at 0"


def test_offsets_are_saved_and_brought_back_as_the_page_prints_it(
    servers: Servers, tree: KazooClient, tmp_path: Path
) -> None:
    coordinator = servers.start("coordinator")
    servers.end(read_all(servers, tree))
    servers.end(coordinator)

    backup, look, restore = shell_block("offsets.md", "Backup and restore")
    servers.play(backup)
    tree.delete(node(0))
    servers.play(look)
    assert 0 not in offsets(tree)
    servers.play(restore)
    assert offsets(tree) == dict.fromkeys(range(PARTITIONS), EARLIER + LATER)

    text = (ROOT / "docs/offsets.md").read_text("utf-8")
    (line,) = re.findall(r"`(/consumers/etl/offsets/clicks/0:\d+)`", text)
    (printed,) = re.findall(r'`(\{"group":"etl","topic":"clicks".*?\})`', text)
    number = line.rpartition(":")[2]
    tree.set(node(0), number.encode())
    export, as_json, dry_run, brought = shell_block("offsets.md", "Export and import")
    servers.play(export)
    assert line in (tmp_path / "offsets.txt").read_text("utf-8").splitlines()
    assert printed in servers.play(as_json)
    tree.set(node(0), b"3")
    servers.play(dry_run)
    assert offsets(tree)[0] == 3
    servers.play(brought)
    assert offsets(tree)[0] == int(number)


def test_a_record_is_changed_and_a_group_mended_as_the_page_prints_it(servers: Servers, tree: KazooClient) -> None:
    servers.start("coordinator")
    consumer = read_all(servers, tree)

    show, change, back = shell_block("operations.md", "The group record")
    servers.play(show)
    changed = servers.play(change)
    rows = dict(line.split()[:2] for line in changed[1:])
    assert (rows["rebalance"], rows["policy.max_moves"]) == ("eager", "10")
    servers.play(back)
    settings = json.loads(servers.play(f"{show.partition('#')[0].rstrip()} --output json")[0])
    assert settings["set"] == ["rebalance"]

    servers.end(consumer)
    tree.set(node(0), b"a hundred")
    look, mend = shell_block("operations.md", "Mending what nobody can parse")
    shown = CliRunner().invoke(cli, servers.words(look))
    assert (shown.exit_code, "a hundred" in shown.stdout) == (6, True), shown.output
    with closing(Terminal(*servers.words(mend))) as terminal:
        terminal.until(lambda lines: any("[y/N]" in line for line in lines))
        terminal.press("y\r")
        assert terminal.process.wait(PATIENCE_SECONDS) == 0
    assert offsets(tree)[0] == 100


def test_a_journal_is_played_again_as_the_page_prints_it(servers: Servers, tree: KazooClient, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    coordinator = servers.start("coordinator", "--journal", str(folder))
    servers.end(read_all(servers, tree))
    servers.end(coordinator)

    again, show, timeline = (re.split(r" {2,}", line)[0] for line in shell_block("operations.md", "The journal"))
    assert replayed(again.replace("FOLDER", str(folder)))
    files = sorted(folder.glob("*.jsonl"))
    assert any("rebalance_stable" in replayed(show.replace("FILE", str(file))) for file in files)
    told = servers.play(timeline.replace(" G ", " etl "), {"FOLDER": str(folder)})
    assert sum(" clicks-" in line for line in told) >= PARTITIONS, told


def replayed(line: str) -> str:
    """What a script of the checkout prints, run in the checkout with this environment."""
    done = subprocess.run(
        line.split(),
        cwd=ROOT,
        env={**os.environ, "ZKCOORD_VENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_plan_of_old_members_needs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = shell_block("commands.md", "What old members would settle on")
    file = shell_block("commands.md", "What old members would settle on", 2)
    Path("group.json").write_text("\n".join(file), "utf-8")
    done = CliRunner().invoke(cli, line.split()[1:])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    threads = [f"etl_host7-1416335000123-1a2b3c4d-{number}" for number in (0, 1)]
    assert found["name"] == "etl on Monday"
    assert sorted(found["owners"]["clicks"].values()) == sorted(2 * threads)
