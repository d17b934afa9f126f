"""Exported offsets go to Kafka's own old tools, ExportZkOffsets and ImportZkOffsets of 0.8.2, and come back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from tests.old_consumers.lab import START_S, V08, V11, Lab
from tests.old_consumers.test_traffic import all_read, broker, create, send
from tests.waiting import wait_until
from zkcoord.embedded.java import find_java
from zkcoord.embedded.old_consumer import old_jars

pytestmark = pytest.mark.legacy


def old_tool(name: str, *words: str) -> None:
    """Run one of Kafka's tools to its end."""
    command = [str(find_java().executable), "-Xmx128m", "-cp", ":".join(map(str, old_jars(V08))), f"kafka.tools.{name}"]
    ran = subprocess.run([*command, *words], capture_output=True, text=True, timeout=START_S)
    assert ran.returncode == 0, ran.stderr


def put(lab: Lab, group: str, topic: str, offsets: list[int]) -> None:
    for number, offset in enumerate(offsets):
        path = f"/consumers/{group}/offsets/{topic}/{number}"
        if not lab.zk.exists(path):
            lab.zk.create(path, makepath=True)
        lab.zk.set(path, str(offset).encode())


def kept(lab: Lab, group: str, topic: str) -> list[bytes]:
    path = f"/consumers/{group}/offsets/{topic}"
    return [lab.zk.get(f"{path}/{name}")[0] for name in sorted(lab.zk.get_children(path), key=int)]


@pytest.fixture
def cli_run() -> Run:
    from click.testing import CliRunner, Result

    from zkcoord.cli.main import cli

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), prog_name="zkcoord")

    return invoke


def test_the_old_tools_and_ours_read_each_others_files(bare: Lab, cli_run: Run, tmp_path: Path) -> None:
    put(bare, "g", "clicks", list(range(100, 112)))
    put(bare, "h", "views", [7])
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"

    old_tool("ExportZkOffsets", "--zkconnect", bare.hosts, "--output-file", str(theirs))
    assert cli_run("offsets", "export", str(ours), "--zookeeper", bare.hosts).exit_code == 0
    assert sorted(theirs.read_text().split()) == sorted(ours.read_text().split())
    assert len(ours.read_text().split()) == 13

    put(bare, "g", "clicks", [0] * 12)
    result = cli_run("offsets", "import", str(theirs), "--zookeeper", bare.hosts)
    assert result.exit_code == 0, result.stderr
    assert kept(bare, "g", "clicks") == [b"%d" % offset for offset in range(100, 112)]

    put(bare, "g", "clicks", [0] * 12)
    bare.zk.delete("/consumers/h", recursive=True)
    old_tool("ImportZkOffsets", "--zkconnect", bare.hosts, "--input-file", str(ours))
    assert kept(bare, "g", "clicks") == [b"%d" % offset for offset in range(100, 112)]
    assert kept(bare, "h", "views") == [b"7"]


@pytest.mark.kafka
def test_both_stores_of_an_old_consumer_are_compared_and_it_starts_where_it_was_set_back_to(
    chroot: str, cli_run: Run, tmp_path: Path
) -> None:
    """It starts at the larger offset, so a reset lowers both; the broker is an old one."""
    words = {"offsets_storage": "kafka", "dual_commit_enabled": "true", "auto_commit_enable": "false"}
    with Lab(chroot, tmp_path) as lab, broker(chroot, V11) as kafka:
        servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers)

        def verdicts() -> list[tuple[Any, ...]]:
            result = cli_run("offsets", "verify", "g", "--output", "json", *servers)
            assert result.exit_code == 0, result.stderr
            rows = [json.loads(line) for line in result.stdout.splitlines()]
            return [(row["zookeeper_offset"], row["kafka_offset"], row["counts"], row["verdict"]) for row in rows]

        create(lab, kafka, "t", 2)
        send(kafka, "t", 2, 10)
        a = lab.join("a", V11, fetch=True, **words)
        wait_until(all_read(lab, "t", 2, 10), "it reads all")
        a.child.say("commit")
        a.await_event("committed")
        assert verdicts() == [(10, 10, 10, "equal")] * 2
        result = cli_run("group", "reset-offsets", "g", "--to-offset", "4", *servers)
        assert (result.exit_code, f"group g is read by {a.id}" in result.stderr) == (2, True)
        a.leave()
        lab.zk.set(lab.path("offsets", "t", "0"), b"4")
        assert verdicts() == [(4, 10, 10, "ahead"), (10, 10, 10, "equal")]
        result = cli_run("group", "reset-offsets", "g", "--to-offset", "4", *servers)
        assert result.exit_code == 0, result.stderr
        assert verdicts() == [(4, 4, 4, "equal")] * 2
        b = lab.join("b", V11, fetch=True, **words)
        wait_until(lambda: len(b.events("record")) >= 12, "the next reads on")
        read = sorted((event["partition"], event["offset"]) for event in b.events("record"))
        assert read == [(partition, offset) for partition in range(2) for offset in range(4, 10)]


def test_a_running_old_consumer_is_named_and_not_overwritten(bare: Lab, cli_run: Run, tmp_path: Path) -> None:
    bare.broker()
    bare.topic("t", 1)
    put(bare, "g", "t", [5])
    consumer = bare.join("a", V08)
    file = tmp_path / "f"
    file.write_text("/consumers/g/offsets/t/0:1\n")
    result = cli_run("offsets", "import", str(file), "--zookeeper", bare.hosts)
    assert (result.exit_code, f"group g is read by {consumer.id}" in result.stderr) == (2, True)
    assert kept(bare, "g", "t") == [b"5"]
