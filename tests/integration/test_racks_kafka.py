"""Real brokers say in which racks they are, and partitions go to the consumers in the racks of their replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.brokers import BOTH, source_of
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.waiting import wait_until
from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedController, EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.embedded.kraft import new_cluster_id
from zkcoord.group_report import GroupReport, read_group
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import FROM_ZOOKEEPER, layout_named
from zkcoord.tree.snapshot import Kind, Read

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

TOPIC, LATER, GROUP, COUNT = "clicks", "later", "g", 6
RACKS = {1: "east", 2: "west"}


def owned(report: GroupReport) -> dict[int, str]:
    """Partition -> the instance that owns it."""
    instances = {consumer: member.instance or "" for consumer, member in report.view.members.items()}
    owners = {p.partition: owner.thread.rpartition("-")[0] for p, owner in report.view.owners.items()}
    return {number: instances.get(consumer, "") for number, consumer in sorted(owners.items())}


@contextmanager
def brokers(version: str, zookeeper: str) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """Two, in the racks east and west."""
    with ExitStack() as stack:
        how = [{"broker_id": n, "heap": "256m", "settings": {"broker.rack": rack}} for n, rack in RACKS.items()]
        if version == KAFKA_4_VERSION:
            controller = stack.enter_context(EmbeddedController(new_cluster_id()))
            made: list[KafkaBroker] = [EmbeddedKRaft(controller=controller, **each) for each in how]
        else:
            made = [EmbeddedKafka(zookeeper, **each) for each in how]
        first, second = (stack.enter_context(each) for each in made)
        yield first, second


@pytest.mark.parametrize("version", BOTH)
def test_partitions_are_read_in_the_racks_of_their_replicas_and_a_stopped_broker_moves_none(version: str) -> None:
    with (
        EmbeddedZooKeeper(fsync=False) as zookeeper,
        brokers(version, zookeeper.hosts) as (first, second),
        ExitStack() as stack,
    ):
        source = source_of(first)
        layout = layout_named("draft", source.get("topics", FROM_ZOOKEEPER))
        coordinator = Coordinator(zookeeper.hosts, **source)
        coordinator.start()
        stack.callback(coordinator.stop)
        tree = Tree(zookeeper.hosts)
        stack.callback(tree.close)
        servers = f"{first.bootstrap_servers},{second.bootstrap_servers}"
        admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
        placed = [[1 + number % 2] for number in range(COUNT)]
        admin.create_topics([NewTopic(TOPIC, COUNT, replica_assignment=placed)])[TOPIC].result(PATIENCE_SECONDS)

        def report() -> GroupReport:
            return read_group(tree, layout, GROUP)

        def consumer(rack: str) -> KafkaConsumer:
            return KafkaConsumer(zookeeper.hosts, servers, GROUP, [TOPIC], instance=f"in-{rack}", rack=rack)

        with consumer("east") as east, consumer("west") as west:
            wanted = {number: ["in-east", "in-west"][number % 2] for number in range(COUNT)}

            def settled() -> bool:
                for one in (east, west):
                    one.poll(0.05)
                known = report()
                return known.settled and owned(known) == wanted

            wait_until(lambda: bool(tree.read([Read(layout.group(GROUP))])[0].exists), "there is a group")
            wait_until(settled, f"owners are {wanted}")
            assert report().view.state.quarantined == {}
            generation = report().view.state.generation
            second.stop()
            if layout.mirrored:  # a mirror keeps the racks of brokers that have replicas
                wait_until(lambda: [*admin.list_topics(timeout=PATIENCE_SECONDS).brokers] == [1], "the broker is gone")
                admin.create_topics([NewTopic(LATER, 1, replica_assignment=[[1]])])[LATER].result(PATIENCE_SECONDS)
                later = Read(layout.topic(LATER))
                wait_until(lambda: tree.read([later])[0].exists, "the coordinator has read what Kafka tells since")
            else:
                ids = Read(layout.brokers, Kind.CHILDREN)
                wait_until(lambda: tree.read([ids])[0].children == ("1",), "the broker is gone")
            known = report()  # what a coordinator that takes over now would want
            assert (known.view.brokers, known.moves()) == (RACKS, [])
            second.start()
            wait_until(settled, f"owners are {wanted}")
            assert report().view.state.generation == generation
