"""`zkcoord migrate move` of a group with offsets in Kafka, on a real ZooKeeper and a real broker."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.group_tree import World
from tests.cli.migrate.test_move import chroot_of
from tests.cli.offsets.test_verify import new_topic
from tests.cli.program import Run
from tests.kafka.helpers import QUIET
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import current
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]


def test_the_commit_in_kafka_that_counts_is_written_to_the_node_and_goes_along(
    chroot: str, zookeeper: EmbeddedZooKeeper, run: Run, kafka: EmbeddedKafka
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    topic = new_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET), 2)
    p0, p1 = (TopicPartition(topic, number) for number in range(2))
    to = chroot_of(zookeeper.hosts, f"/{group}")
    with Tree(chroot) as tree, Tree(to) as there, KafkaClient(kafka.bootstrap_servers) as client:
        world = World(tree, chroot)
        World(there, to).topic(topic, 2)
        world.topic(topic, 2)
        world.put(DRAFT.record(group), encode_record(GroupRecord(store_name="kafka")))
        for partition in (p0, p1):
            world.put(DRAFT.offset(group, partition), b"100")
        stats = [node.stat for node in tree.read([Read(DRAFT.offset(group, p)) for p in (p0, p1)])]
        schema = current(tree)
        assert schema is not None
        tenures = [Tenure(schema.tree_id, stat.mzxid) for stat in stats if stat is not None]
        commits = {p0: KafkaCommit(offset=900, stamp=Stamp(tenure=tenures[0]))}
        commits[p1] = KafkaCommit(offset=9_999, stamp=Stamp(tenure=tenures[1]._replace(tree="another")))
        assert KafkaCommits(client).commit(group, commits).error() is None
        words = ("migrate", "move", "--to", to, "--group", group, "--zookeeper", chroot)

        refused = run(*words)
        assert (refused.exit_code, "where is Kafka? give --bootstrap-servers" in refused.stderr) == (2, True)
        moved = run(*words, "--bootstrap-servers", kafka.bootstrap_servers)

        assert moved.stdout.splitlines()[1].split() == [group, "2", "1", "0", "moved"], moved.stderr
        for side in (tree, there):
            nodes = side.read([Read(DRAFT.offset(group, p)) for p in (p0, p1)])
            assert [node.data for node in nodes] == [b"900", b"100"]
