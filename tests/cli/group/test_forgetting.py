"""`zkcoord group delete --offsets` of a group that keeps offsets in Kafka, on a real ZooKeeper and a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.program import Run
from tests.integration.world import World
from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord, Request
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.embedded import EmbeddedKafka
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import current, upgrade
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.operating.forgetting import forget_commits
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]


class Group:
    """A group in the store `kafka`: its node says 5, and Kafka's commit, which counts, 9."""

    def __init__(self, world: World, kafka: KafkaCommits, topic: str) -> None:
        self.world, self.kafka = world, kafka
        self.name, self.partition = f"g-{uuid.uuid4().hex[:8]}", TopicPartition(topic, 0)
        self.path = DRAFT.offset(self.name, self.partition)
        world.put(DRAFT.record(self.name), encode_record(GroupRecord(store_name="kafka", store_step=2)))
        world.put(DRAFT.ids(self.name))
        world.put(self.path, b"5")
        (node,) = world.tree.read([Read(self.path)])
        schema = current(world.tree)
        assert schema is not None
        assert node.stat is not None
        stamp = Stamp(tenure=Tenure(schema.tree_id, node.stat.mzxid))
        assert kafka.commit(self.name, {self.partition: KafkaCommit(offset=9, stamp=stamp)}).error() is None

    def in_kafka(self) -> list[int]:
        return [commit.offset for commit in self.kafka.read([self.name]).found[self.name].values()]


@pytest.fixture
def group(chroot: str, kafka: EmbeddedKafka) -> Iterator[Group]:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    create_topic(admin, topic, 1)
    with World(chroot) as world, KafkaClient(kafka.bootstrap_servers) as client:
        upgrade(world.tree, run_id="test")
        world.topic(topic, 1)
        yield Group(world, KafkaCommits(client), topic)


def test_f191_a_group_that_is_handed_over_is_deleted_with_its_offsets_only(group: Group, run: Run) -> None:
    """Without the group's record a consumer of zkcoord could join, and would read the group beside Kafka's
    consumers."""
    pause = Request(run="r1", handed_over="done")
    record = encode_record(GroupRecord(store_name="kafka", store_step=2, requests={"pause": pause}))
    group.world.put(DRAFT.record(group.name), record)
    refused = run("group", "delete", group.name, "--zookeeper", group.world.zookeeper)
    assert (refused.exit_code, "or give --offsets: those in Kafka stay" in refused.stderr) == (2, True)
    assert group.world.data(DRAFT.record(group.name)) == record


def test_a_group_that_is_deleted_with_its_offsets_leaves_none_in_kafka(
    group: Group, run: Run, kafka: EmbeddedKafka
) -> None:
    words = ("group", "delete", group.name, "--offsets", "--zookeeper", group.world.zookeeper)
    refused = run(*words)
    assert refused.exit_code == 2
    assert f"group {group.name} has offsets in Kafka, too: give --bootstrap-servers" in refused.stderr
    assert group.in_kafka() == [9]
    group.world.coordinate()
    deleted = run(*words, "--bootstrap-servers", kafka.bootstrap_servers)
    assert deleted.exit_code == 0, deleted.stderr
    assert group.in_kafka() == []
    assert not group.world.tree.read([Read(DRAFT.record(group.name))])[0].exists


def test_the_node_has_the_counting_offset_before_the_commit_goes(group: Group) -> None:
    """If the deletion is refused or interrupted, the group goes on, and loses no offset."""
    forget_commits(group.world.tree, DRAFT, group.name, group.kafka)
    assert group.world.data(group.path) == b"9"
    assert group.in_kafka() == []
    forget_commits(group.world.tree, DRAFT, group.name, group.kafka)  # nothing is left to be done
    assert group.world.data(group.path) == b"9"


def test_nothing_is_removed_while_a_member_is_there_or_a_node_cannot_be_read(group: Group) -> None:
    member = DRAFT.registration(group.name, f"{group.name}_h-1-aaaaaaaa")
    group.world.put(member, b'{"version":1,"subscription":{"t":1},"pattern":"static","coordination":"zkcoord/1"}')
    forget_commits(group.world.tree, DRAFT, group.name, group.kafka)
    assert (group.in_kafka(), group.world.data(group.path)) == ([9], b"5")
    group.world.remove(member)
    group.world.put(group.path, b"many")
    with pytest.raises(UsageError, match="an operator must set it to a number"):
        forget_commits(group.world.tree, DRAFT, group.name, group.kafka)
    assert group.in_kafka() == [9]
