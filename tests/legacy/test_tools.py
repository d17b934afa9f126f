"""The old consumers' own tools work beside zkcoord as before: on an adopted group with members of both, a real broker.

The tools are those of Kafka 0.8.2.2 and 1.1.1. They take each child of `/consumers` for a group, so nothing else of
zkcoord's stands there than what a group of theirs has, too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.legacy.lab import V08, V11, Lab, OldConsumer, old_jars
from tests.legacy.test_traffic import all_read, broker, create, send
from tests.waiting import wait_until
from zkcoord.cli.releasing import release
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.embedded.java import find_java
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record

pytestmark = [pytest.mark.legacy, pytest.mark.kafka, pytest.mark.zookeeper]

TOOL_S = 90
GROUPS, CHECKER = "kafka.admin.ConsumerGroupCommand", "kafka.tools.ConsumerOffsetChecker"
TOPICS, EXPORT, IMPORT = "kafka.admin.TopicCommand", "kafka.tools.ExportZkOffsets", "kafka.tools.ImportZkOffsets"
OURS = "g_ours-1416335000123-z1a2b3c4"


def tool(version: str, main: str, *arguments: str) -> str:
    """Run a tool, and return all that it printed; its exit code says nothing."""
    command = find_java().command(main, old_jars(version), *arguments, heap="128m")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S)
    return ran.stdout + ran.stderr


@dataclass(frozen=True)
class Beside:
    """A group with a real old member and a registration of ours, adopted; topics `t` (2 partitions) and `u` (1)."""

    lab: Lab
    hosts: str
    member: OldConsumer


@pytest.fixture
def beside(chroot: str, tmp_path: Path) -> Iterator[Beside]:
    with Lab(chroot, tmp_path) as lab, broker(chroot, V11) as kafka, Tree(chroot) as tree:
        create(lab, kafka, "t", 2)
        create(lab, kafka, "u", 1)
        send(kafka, "t", 2, 10)
        lab.zk.create(lab.path("offsets", "u", "0"), b"3", makepath=True)
        upgrade(tree, run_id="test", layout="legacy")
        adoption = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")
        record = encode_record(replace(DEFAULT_RECORD, adoption=adoption))
        for path, data in {
            LEGACY.record("g"): record,
            LEGACY.state("g"): b"{}",
            LEGACY.mark("g", "t"): b"{}",
            LEGACY.channel("g", OURS): b"{}",
        }.items():
            lab.zk.create(path, data, makepath=True)
        member = lab.join("old", V11, fetch=True)
        register(lab)
        wait_until(all_read(lab, "t", 2, 10), "the old member reads all")
        member.child.say("commit")
        member.await_event("committed")
        lab.claim("u", 0, f"{OURS}-0")
        yield Beside(lab, chroot, member)


def register(lab: Lab) -> None:
    """A consumer of ours, as it registers."""
    document = {
        "version": 1,
        "subscription": {"u": 1},
        "pattern": "static",
        "timestamp": "1416335000123",
        "coordination": "zkcoord/1",
        "assignors": ["range"],
    }
    lab.register(OURS.removeprefix("g_"), json.dumps(document))


def test_tools_of_0_8_and_1_1_show_an_adopted_group_and_move_its_offsets(beside: Beside, tmp_path: Path) -> None:
    zookeeper = ("--zookeeper", beside.hosts)
    listed = tool(V11, GROUPS, *zookeeper, "--list").splitlines()
    assert [line for line in listed if line and " " not in line] == ["g"]

    described = tool(V11, GROUPS, *zookeeper, "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith(("t ", "u "))]
    assert sorted([*row[:3], row[-1]] for row in rows) == [
        ["t", "0", "10", "g_old"],
        ["t", "1", "10", "g_old"],
        ["u", "0", "3", OURS],
    ]
    checked = tool(V08, CHECKER, *zookeeper, "--group", "g")
    rows = [line.split() for line in checked.splitlines() if line.startswith("g ")]
    assert sorted([*row[1:4], row[-1]] for row in rows) == [
        ["t", "0", "10", "g_old-0"],
        ["t", "1", "10", "g_old-0"],
        ["u", "0", "3", f"{OURS}-0"],
    ]
    for version in (V08, V11):
        file = tmp_path / f"offsets-{version}"
        said = tool(version, EXPORT, "--zkconnect", beside.hosts, "--output-file", str(file))
        assert sorted(file.read_text().split()) == [
            "/consumers/g/offsets/t/0:10",
            "/consumers/g/offsets/t/1:10",
            "/consumers/g/offsets/u/0:3",
        ], said
    beside.member.leave()
    changed = tmp_path / "changed"
    changed.write_text("/consumers/g/offsets/t/0:7\n/consumers/g/offsets/t/1:8\n")
    said = tool(V08, IMPORT, "--zkconnect", beside.hosts, "--input-file", str(changed))
    assert [beside.lab.zk.get(beside.lab.path("offsets", "t", n))[0] for n in "01"] == [b"7", b"8"], said


def test_tools_of_1_1_delete_topics_and_groups_beside_adopted_ones(beside: Beside) -> None:
    lab, zookeeper = beside.lab, ("--zookeeper", beside.hosts)
    ours = {path: data for path, (data, _) in nodes(lab, "/zkcoord").items()}

    said = tool(V11, TOPICS, *zookeeper, "--delete", "--topic", "u")
    wait_until(lambda: not lab.zk.exists("/brokers/topics/u"), f"the topic is deleted: {said}")
    said = tool(V11, GROUPS, *zookeeper, "--delete", "--group", "g")
    assert "g" in lab.zk.get_children("/consumers"), said  # it has members

    beside.member.leave()
    lab.zk.delete(lab.path("ids", OURS))
    said = tool(V11, GROUPS, *zookeeper, "--delete", "--topic", "u")
    assert not lab.zk.exists(lab.path("offsets", "u")), said
    assert lab.zk.exists(lab.path("offsets", "t")), said
    said = tool(V11, GROUPS, *zookeeper, "--delete", "--group", "g")
    assert lab.zk.exists(lab.path()) is None, said
    assert {path: data for path, (data, _) in nodes(lab, "/zkcoord").items()} == ours  # the tool knows nothing of it

    with Tree(beside.hosts) as tree:
        assert release(tree, LEGACY, "g", lambda there: pytest.fail(str(there))) > 0
    assert not lab.zk.exists(LEGACY.record("g"))
    assert not lab.zk.exists(LEGACY.channels_of("g"))


def test_a_member_of_1_1_goes_on_through_the_release_of_its_group(beside: Beside) -> None:
    """It does not notice: no rebalance is caused, and it owns what it owned."""
    lab, member = beside.lab, beside.member
    lab.zk.delete(lab.path("owners", "u", "0"))
    lab.zk.delete(lab.path("ids", OURS))
    wait_until(lambda: member.owned() == {"t-0", "t-1"}, "it owns all after our member has gone")
    wait_until(lambda: lab.owners() == {"t-0": "g_old-0", "t-1": "g_old-0"}, "the tree says so")
    before = member.rebalances()
    with Tree(beside.hosts) as tree:
        release(tree, LEGACY, "g", lambda there: pytest.fail(str(there)))
    assert not lab.zk.exists(LEGACY.record("g"))
    assert lab.owners() == {"t-0": "g_old-0", "t-1": "g_old-0"}
    assert member.rebalances() == before


def nodes(lab: Lab, path: str) -> dict[str, tuple[bytes, object]]:
    """All nodes at and below a path."""
    found: dict[str, tuple[bytes, object]] = {path: lab.zk.get(path)}
    for name in lab.zk.get_children(path):
        found |= nodes(lab, f"{path}/{name}")
    return found
