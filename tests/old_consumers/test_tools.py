"""The old consumers' own tools work beside zkcoord as before: on an adopted group with members of both, a real broker.

The tools are those of Kafka 0.8.2.2, 0.11.0.2 and 1.1.1. They take each child of `/consumers` for a group, so nothing
else of zkcoord's stands there than what a group of theirs has, too.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.world import Member, World
from tests.old_consumers.lab import BACKOFF_MS, EACH_AT_LENGTH, LONG, RETRIES, V011, V08, V11, Lab, OldConsumer
from tests.old_consumers.test_traffic import all_read, broker, create, send
from tests.waiting import wait_until
from zkcoord import TopicPartition
from zkcoord.core.adoption import Adoption
from zkcoord.embedded import EmbeddedKafka
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS
from zkcoord.embedded.java import find_java
from zkcoord.embedded.old_consumer import old_jars
from zkcoord.errors import FencedError
from zkcoord.operating.releasing import release
from zkcoord.operating.requesting import edit_record
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY

pytestmark = [pytest.mark.legacy, pytest.mark.kafka, pytest.mark.zookeeper]

TOOL_S = 90
GROUPS, CHECKER = "kafka.admin.ConsumerGroupCommand", "kafka.tools.ConsumerOffsetChecker"
TOPICS, EXPORT, IMPORT = "kafka.admin.TopicCommand", "kafka.tools.ExportZkOffsets", "kafka.tools.ImportZkOffsets"
UPDATE = "kafka.tools.UpdateOffsetsInZK"


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
    kafka: EmbeddedKafka
    world: World
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
def beside(chroot: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Beside]:
    """The old member's version may be the fixture's parameter."""
    version = getattr(request, "param", V11)
    with Lab(chroot, tmp_path) as lab, broker(chroot, V11) as kafka, World(chroot) as world:
        create(lab, kafka, "t", 2)
        create(lab, kafka, "u", 1)
        send(kafka, "t", 2, 10)
        lab.zk.create(lab.path("offsets", "u", "0"), b"3", makepath=True)
        member = lab.join("old", version, fetch=True)
        world.coordinate("legacy")
        told = Adoption(offsets="zookeeper", strategy="range", kafka="1.1", retries=RETRIES, backoff_ms=BACKOFF_MS)
        told = replace(told, auto_commit_interval_ms=1_000)
        edit_record(world.tree, LEGACY, "g", lambda record: replace(record, adoption=told), new=True)
        ours = world.join("g", "u")
        wait_until(lambda: ours.held() == ["u-0"], "our consumer has the topic that it alone wants")
        wait_until(all_read(lab, "t", 2, 10), "the old member reads all")
        member.child.say("commit")
        member.await_event("committed")
        yield Beside(lab, chroot, kafka, world, member, ours)


@pytest.mark.parametrize("versions", [pytest.param((V08, V11)), pytest.param((V011,), marks=LONG)])
def test_old_tools_show_an_adopted_group_and_move_its_offsets(
    beside: Beside, tmp_path: Path, versions: tuple[str, ...]
) -> None:
    """`versions`: the oldest of them has `ConsumerOffsetChecker`, the newest `kafka-consumer-groups --zookeeper`.

    The old member shares `t` with a second consumer of ours.
    """
    oldest, newest = versions[0], versions[-1]
    sharing = beside.world.join("g", "t")
    wait_until(lambda: sharing.held() == ["t-1"], "ours has its share of the topic", TOOL_S)
    wait_until(lambda: beside.member.owned() == {"t-0"}, "the old member has kept the rest", TOOL_S)
    shared = str(sharing.consumer.consumer_id)
    zookeeper = ("--zookeeper", beside.hosts)
    listed = tool(newest, GROUPS, *zookeeper, "--list").splitlines()
    assert [line for line in listed if line and " " not in line] == ["g"]

    described = tool(newest, GROUPS, *zookeeper, "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith(("t ", "u "))]
    assert sorted([*row[:3], row[-1]] for row in rows) == [
        ["t", "0", "10", "g_old"],
        ["t", "1", "10", shared],
        ["u", "0", "3", beside.name],
    ]
    checked = tool(oldest, CHECKER, *zookeeper, "--group", "g")
    rows = [line.split() for line in checked.splitlines() if line.startswith("g ")]
    assert sorted([*row[1:4], row[-1]] for row in rows) == [
        ["t", "0", "10", "g_old-0"],
        ["t", "1", "10", f"{shared}-0"],
        ["u", "0", "3", f"{beside.name}-0"],
    ]
    for version in versions:
        file = tmp_path / f"offsets-{version}"
        said = tool(version, EXPORT, "--zkconnect", beside.hosts, "--output-file", str(file))
        assert sorted(file.read_text().split()) == [
            "/consumers/g/offsets/t/0:10",
            "/consumers/g/offsets/t/1:10",
            "/consumers/g/offsets/u/0:3",
        ], said
    sharing.consumer.stop()
    beside.leave()
    changed = tmp_path / "changed"
    for offset, version in enumerate(versions, 7):
        changed.write_text(f"/consumers/g/offsets/t/0:{offset}\n/consumers/g/offsets/t/1:{offset + 1}\n")
        said = tool(version, IMPORT, "--zkconnect", beside.hosts, "--input-file", str(changed))
        offsets = [int(beside.lab.zk.get(beside.lab.path("offsets", "t", n))[0]) for n in "01"]
        assert offsets == [offset, offset + 1], said


@pytest.mark.parametrize("version", [pytest.param(V011, marks=LONG), V11])
def test_old_tools_delete_topics_and_groups_beside_adopted_ones(beside: Beside, version: str) -> None:
    lab, zookeeper = beside.lab, ("--zookeeper", beside.hosts)

    said = tool(version, TOPICS, *zookeeper, "--delete", "--topic", "u")
    wait_until(lambda: not lab.zk.exists("/brokers/topics/u"), f"the topic is deleted: {said}")
    said = tool(version, GROUPS, *zookeeper, "--delete", "--group", "g")
    assert "g" in lab.zk.get_children("/consumers"), said  # it has members

    beside.leave()
    said = tool(version, GROUPS, *zookeeper, "--delete", "--topic", "u")
    assert not lab.zk.exists(lab.path("offsets", "u")), said
    assert lab.zk.exists(lab.path("offsets", "t")), said
    said = tool(version, GROUPS, *zookeeper, "--delete", "--group", "g")
    assert lab.zk.exists(lab.path()) is None, said
    assert lab.zk.exists(LEGACY.record("g"))  # the tool knows nothing of it

    with Tree(beside.hosts) as tree:
        assert release(tree, LEGACY, "g", lambda there: pytest.fail(str(there))) > 0
    assert not lab.zk.exists(LEGACY.record("g"))
    assert not lab.zk.exists(LEGACY.channels_of("g"))


@pytest.mark.parametrize("beside", EACH_AT_LENGTH, indirect=True)
def test_an_old_member_goes_on_through_the_release_of_its_group(beside: Beside) -> None:
    """It does not notice: no rebalance is caused, and it owns what it owned."""
    lab, member = beside.lab, beside.member
    before = member.rebalances()
    beside.ours.consumer.stop()
    wait_until(lambda: member.rebalances() > before and member.rests(), "it has rebalanced after our member has gone")
    wait_until(lambda: member.owned() == {"t-0", "t-1"}, "it owns all after our member has gone")
    wait_until(lambda: lab.owners() == {"t-0": "g_old-0", "t-1": "g_old-0"}, "the tree says so")
    before = member.rebalances()
    with Tree(beside.hosts) as tree:
        release(tree, LEGACY, "g", lambda there: pytest.fail(str(there)))
    assert not lab.zk.exists(LEGACY.record("g"))
    assert lab.owners() == {"t-0": "g_old-0", "t-1": "g_old-0"}
    assert member.rebalances() == before


@LONG
@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_f230_offsets_that_kafkas_old_tool_updates_count_as_a_reset_for_ours(
    beside: Beside, tmp_path: Path, version: str
) -> None:
    """`UpdateOffsetsInZK latest` and `earliest` under a consumer that reads, and on partitions that nobody holds."""
    first, ours, lab = TopicPartition("u", 0), beside.ours, beside.lab
    send(beside.kafka, "u", 1, 8)
    properties = tmp_path / "consumer.properties"
    properties.write_text(f"zookeeper.connect={beside.hosts}\ngroup.id=g\n")
    offsets = itertools.count(5)

    def followed(where: str, offset: int) -> bool:
        """Whether the next commit is refused for what the tool has set."""
        said = tool(version, UPDATE, where, str(properties), "u")
        assert lab.zk.get(lab.path("offsets", "u", "0"))[0] == b"%d" % offset, said
        try:
            ours.consumer.commit({first: next(offsets)})
        except FencedError:
            wait_until(lambda: ours.begun == {first: offset}, f"it starts again at {offset}")
            return True
        return False

    assert ours.begun == {first: 3}
    assert followed("latest", 8)
    # an old member may have had it before ours joined: until its late commit is impossible, going back looks like one
    wait_until(lambda: followed("earliest", 0), "no old member's commit can be on its way any more", TOOL_S)
    assert len(beside.world.reports.of("foreign_offset")) == 2
    beside.leave()

    said = tool(version, UPDATE, "earliest", str(properties), "t")
    assert [lab.zk.get(lab.path("offsets", "t", n))[0] for n in "01"] == [b"0", b"0"], said
    heir = beside.world.join("g", "t")
    wait_until(lambda: heir.begun == {TopicPartition("t", n): 0 for n in range(2)}, "the next one starts there")
