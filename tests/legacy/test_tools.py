"""The old consumers' own tools work beside zkcoord as before: on an adopted group with members of both, a real broker.

The tools are those of Kafka 0.8.2.2 and 1.1.1. They take each child of `/consumers` for a group, so nothing else of
zkcoord's stands there than what a group of theirs has, too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.world import Member, World
from tests.legacy.lab import BACKOFF_MS, RETRIES, V08, V11, Lab, OldConsumer
from tests.legacy.test_traffic import all_read, broker, create, send
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.embedded.java import find_java
from zkcoord.embedded.old_consumer import old_jars
from zkcoord.operating.releasing import release
from zkcoord.operating.requesting import edit_record
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY

pytestmark = [pytest.mark.legacy, pytest.mark.kafka, pytest.mark.zookeeper]

TOOL_S = 90
GROUPS, CHECKER = "kafka.admin.ConsumerGroupCommand", "kafka.tools.ConsumerOffsetChecker"
TOPICS, EXPORT, IMPORT = "kafka.admin.TopicCommand", "kafka.tools.ExportZkOffsets", "kafka.tools.ImportZkOffsets"


def tool(version: str, main: str, *arguments: str) -> str:
    """Run a tool, and return all that it printed; its exit code says nothing."""
    command = find_java().command(main, old_jars(version), *arguments, heap="128m")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S)
    return ran.stdout + ran.stderr


@dataclass(frozen=True)
class Beside:
    """An adopted group with an old member that reads topic `t` (2 partitions), and a consumer of ours that reads
    `u` (1); a coordinator serves."""

    lab: Lab
    hosts: str
    member: OldConsumer
    ours: Member

    @property
    def name(self) -> str:
        """The name under which our consumer is registered."""
        return str(self.ours.consumer.consumer_id)

    def leave(self) -> None:
        """Both leave."""
        self.member.leave()
        self.ours.consumer.stop()


@pytest.fixture
def beside(chroot: str, tmp_path: Path) -> Iterator[Beside]:
    with Lab(chroot, tmp_path) as lab, broker(chroot, V11) as kafka, World(chroot) as world:
        create(lab, kafka, "t", 2)
        create(lab, kafka, "u", 1)
        send(kafka, "t", 2, 10)
        lab.zk.create(lab.path("offsets", "u", "0"), b"3", makepath=True)
        member = lab.join("old", V11, fetch=True)
        world.coordinate("legacy")
        told = Adoption(offsets="zookeeper", strategy="range", kafka="1.1", retries=RETRIES, backoff_ms=BACKOFF_MS)
        edit_record(world.tree, LEGACY, "g", lambda record: replace(record, adoption=told), new=True)
        ours = world.join("g", "u")
        wait_until(lambda: ours.held() == ["u-0"], "our consumer has the topic that it alone wants")
        wait_until(all_read(lab, "t", 2, 10), "the old member reads all")
        member.child.say("commit")
        member.await_event("committed")
        yield Beside(lab, chroot, member, ours)


def test_tools_of_0_8_and_1_1_show_an_adopted_group_and_move_its_offsets(beside: Beside, tmp_path: Path) -> None:
    zookeeper = ("--zookeeper", beside.hosts)
    listed = tool(V11, GROUPS, *zookeeper, "--list").splitlines()
    assert [line for line in listed if line and " " not in line] == ["g"]

    described = tool(V11, GROUPS, *zookeeper, "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith(("t ", "u "))]
    assert sorted([*row[:3], row[-1]] for row in rows) == [
        ["t", "0", "10", "g_old"],
        ["t", "1", "10", "g_old"],
        ["u", "0", "3", beside.name],
    ]
    checked = tool(V08, CHECKER, *zookeeper, "--group", "g")
    rows = [line.split() for line in checked.splitlines() if line.startswith("g ")]
    assert sorted([*row[1:4], row[-1]] for row in rows) == [
        ["t", "0", "10", "g_old-0"],
        ["t", "1", "10", "g_old-0"],
        ["u", "0", "3", f"{beside.name}-0"],
    ]
    for version in (V08, V11):
        file = tmp_path / f"offsets-{version}"
        said = tool(version, EXPORT, "--zkconnect", beside.hosts, "--output-file", str(file))
        assert sorted(file.read_text().split()) == [
            "/consumers/g/offsets/t/0:10",
            "/consumers/g/offsets/t/1:10",
            "/consumers/g/offsets/u/0:3",
        ], said
    beside.leave()
    changed = tmp_path / "changed"
    changed.write_text("/consumers/g/offsets/t/0:7\n/consumers/g/offsets/t/1:8\n")
    said = tool(V08, IMPORT, "--zkconnect", beside.hosts, "--input-file", str(changed))
    assert [beside.lab.zk.get(beside.lab.path("offsets", "t", n))[0] for n in "01"] == [b"7", b"8"], said


def test_tools_of_1_1_delete_topics_and_groups_beside_adopted_ones(beside: Beside) -> None:
    lab, zookeeper = beside.lab, ("--zookeeper", beside.hosts)

    said = tool(V11, TOPICS, *zookeeper, "--delete", "--topic", "u")
    wait_until(lambda: not lab.zk.exists("/brokers/topics/u"), f"the topic is deleted: {said}")
    said = tool(V11, GROUPS, *zookeeper, "--delete", "--group", "g")
    assert "g" in lab.zk.get_children("/consumers"), said  # it has members

    beside.leave()
    said = tool(V11, GROUPS, *zookeeper, "--delete", "--topic", "u")
    assert not lab.zk.exists(lab.path("offsets", "u")), said
    assert lab.zk.exists(lab.path("offsets", "t")), said
    said = tool(V11, GROUPS, *zookeeper, "--delete", "--group", "g")
    assert lab.zk.exists(lab.path()) is None, said
    assert lab.zk.exists(LEGACY.record("g"))  # the tool knows nothing of it

    with Tree(beside.hosts) as tree:
        assert release(tree, LEGACY, "g", lambda there: pytest.fail(str(there))) > 0
    assert not lab.zk.exists(LEGACY.record("g"))
    assert not lab.zk.exists(LEGACY.channels_of("g"))


def test_a_member_of_1_1_goes_on_through_the_release_of_its_group(beside: Beside) -> None:
    """It does not notice: no rebalance is caused, and it owns what it owned."""
    lab, member = beside.lab, beside.member
    before = member.rebalances()
    beside.ours.consumer.stop()
    wait_until(lambda: member.rebalances() > before, "it has seen that our member has gone")
    wait_until(lambda: member.owned() == {"t-0", "t-1"}, "it owns all after our member has gone")
    wait_until(lambda: lab.owners() == {"t-0": "g_old-0", "t-1": "g_old-0"}, "the tree says so")
    before = member.rebalances()
    with Tree(beside.hosts) as tree:
        release(tree, LEGACY, "g", lambda there: pytest.fail(str(there)))
    assert not lab.zk.exists(LEGACY.record("g"))
    assert lab.owners() == {"t-0": "g_old-0", "t-1": "g_old-0"}
    assert member.rebalances() == before
