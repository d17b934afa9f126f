"""`zkcoord offsets import` into groups whose consumers go on from commits in Kafka, on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.program import Run
from tests.integration.world import World
from tests.kafka.commits import commit_as_stranger
from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.embedded import EmbeddedKafka
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import upgrade
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.tree.paths import CLUSTER_ID, LEGACY
from zkcoord.tree.record import encode_record

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

ADOPTED = Adoption(offsets="kafka", strategy="range", kafka="1.1")
OLD_IN_KAFKA = replace(DEFAULT_RECORD, adoption=ADOPTED, store_name="kafka")
OLD_IN_BOTH = replace(DEFAULT_RECORD, adoption=replace(ADOPTED, dual_commit=True), store_name="dual")


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with World(chroot) as world:
        yield world


class Scene:
    """A group of old members that has the node 4 of both partitions, and a commit of the first one in Kafka, at 9."""

    def __init__(self, world: World, kafka: EmbeddedKafka, file: Path) -> None:
        self.world, self.kafka, self.file = world, kafka, file
        self.group, self.topic = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("g", "t"))
        self.partitions = [TopicPartition(self.topic, number) for number in range(2)]
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
        create_topic(self.admin, self.topic, 2)
        commit_as_stranger(self.admin, self.group, self.topic, {0: 9})
        world.topic(self.topic, 2)
        for partition in self.partitions:
            world.put(LEGACY.offset(self.group, partition), b"4")
        file.write_text("".join(f"{LEGACY.offset(self.group, partition)}:3\n" for partition in self.partitions))

    def adopted(self, record: GroupRecord) -> None:
        upgrade(self.world.tree, run_id="test", layout=LEGACY.name)
        self.world.put(LEGACY.record(self.group), encode_record(record))

    def nodes(self) -> list[int]:
        return [int(self.world.data(LEGACY.offset(self.group, partition))) for partition in self.partitions]

    def commits(self) -> dict[int, int]:
        with KafkaClient(self.kafka.bootstrap_servers) as client:
            found = KafkaCommits(client).read([self.group]).found[self.group]
        return {partition.partition: commit.offset for partition, commit in found.items()}


@pytest.fixture
def scene(world: World, kafka: EmbeddedKafka, tmp_path: Path) -> Scene:
    return Scene(world, kafka, tmp_path / "file")


@pytest.mark.parametrize(
    ("record", "commits"),
    [(OLD_IN_KAFKA, {0: 3, 1: 3}), (OLD_IN_BOTH, {0: 3}), (None, {0: 9})],
    ids=["in-kafka-alone", "in-both", "not-adopted"],
)
def test_f246_an_import_sets_kafka_too_where_a_group_goes_on_from_there(
    scene: Scene, run: Run, record: GroupRecord | None, commits: dict[int, int]
) -> None:
    """Of a group that is not adopted nobody has said where its old members commit: it is theirs alone."""
    words = ("offsets", "import", str(scene.file), "--zookeeper", scene.world.zookeeper)
    if record is not None:
        scene.adopted(record)
        for more in ((), ("--dry-run",)):
            refused = run(*words, *more)
            assert (refused.exit_code, "give --bootstrap-servers" in refused.stderr) == (2, True), refused.stderr
        assert (scene.nodes(), scene.commits()) == ([4, 4], {0: 9})
    done = run(*words, "--bootstrap-servers", scene.kafka.bootstrap_servers)
    assert done.exit_code == 0, done.stderr
    assert (scene.nodes(), scene.commits()) == ([3, 3], commits)


def test_f308_offsets_outside_of_their_logs_are_told_once_a_topic_and_set_all_the_same(scene: Scene, run: Run) -> None:
    """The logs are empty: 3 is beyond their ends."""
    servers = ("--zookeeper", scene.world.zookeeper, "--bootstrap-servers", scene.kafka.bootstrap_servers)
    for words, nodes in ((("--dry-run",), [4, 4]), ((), [3, 3])):
        done = run("offsets", "import", str(scene.file), *words, *servers)
        assert (done.exit_code, scene.nodes()) == (0, nodes)
        told = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
        topic = scene.topic
        assert told == [
            f"warning: topic {topic}: 2 offsets outside of the log, as {topic}-0 at 3 (0 to 0), {topic}-1 at 3 (0 to"
            " 0): consumers go on by their reset policy there; `zkcoord group reset-offsets G --from-file FILE` sets"
            " offsets within the logs"
        ]


def test_brokers_of_another_cluster_than_the_trees_are_refused(scene: Scene, run: Run) -> None:
    scene.adopted(OLD_IN_KAFKA)
    scene.world.put(CLUSTER_ID, b'{"version":"1","id":"anotherclusteranothercl"}')
    servers = ("--zookeeper", scene.world.zookeeper, "--bootstrap-servers", scene.kafka.bootstrap_servers)
    refused = run("offsets", "import", str(scene.file), *servers)
    assert (refused.exit_code, "cluster" in refused.stderr) == (2, True), refused.stderr
    assert (scene.nodes(), scene.commits()) == ([4, 4], {0: 9})


def test_a_restore_tells_of_groups_that_go_on_from_commits_in_kafka(scene: Scene, run: Run, tmp_path: Path) -> None:
    """Also a dry run into an empty tree, where the record is only in the backup."""
    scene.adopted(OLD_IN_KAFKA)
    scene.world.put(LEGACY.offset("h", scene.partitions[0]), b"4")
    backup, where = str(tmp_path / "backup"), ("--zookeeper", scene.world.zookeeper)
    assert run("backup", backup, *where).exit_code == 0
    empty = f"{scene.world.zookeeper}/empty"
    scene.world.put("/empty")
    for words in (where, ("--zookeeper", empty, "--dry-run"), ("--zookeeper", empty)):
        told = run("restore", backup, *words)
        assert told.exit_code == 0, told.stderr
        assert f"group {scene.group} goes on from other programs' commits in Kafka, too" in told.stderr
        assert f"`zkcoord offsets verify {scene.group}`" in told.stderr
        assert "group h goes on" not in told.stderr
