"""Real brokers say in which racks they are, and partitions go to the consumers in the racks of their replicas."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.waiting import wait_until
from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.group_report import GroupReport, read_group
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import BROKERS, DRAFT
from zkcoord.tree.snapshot import Kind, Read

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

TOPIC, GROUP, COUNT = "clicks", "g", 6


def owned(report: GroupReport) -> dict[int, str]:
    """Partition -> the instance that owns it."""
    instances = {consumer: member.instance or "" for consumer, member in report.view.members.items()}
    owners = {p.partition: owner.thread.rpartition("-")[0] for p, owner in report.view.owners.items()}
    return {number: instances.get(consumer, "") for number, consumer in sorted(owners.items())}


def test_partitions_are_read_in_the_racks_of_their_replicas_and_a_stopped_broker_moves_none() -> None:
    with EmbeddedZooKeeper(fsync=False) as zookeeper:
        first = EmbeddedKafka(zookeeper.hosts, broker_id=1, heap="256m", settings={"broker.rack": "east"})
        second = EmbeddedKafka(zookeeper.hosts, broker_id=2, heap="256m", settings={"broker.rack": "west"})
        with first, second, ExitStack() as stack:
            coordinator = Coordinator(zookeeper.hosts)
            coordinator.start()
            stack.callback(coordinator.stop)
            tree = Tree(zookeeper.hosts)
            stack.callback(tree.close)
            servers = f"{first.bootstrap_servers},{second.bootstrap_servers}"
            admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
            placed = [[1 + number % 2] for number in range(COUNT)]
            admin.create_topics([NewTopic(TOPIC, COUNT, replica_assignment=placed)])[TOPIC].result(PATIENCE_SECONDS)

            def report() -> GroupReport:
                return read_group(tree, DRAFT, GROUP)

            def consumer(rack: str) -> KafkaConsumer:
                return KafkaConsumer(zookeeper.hosts, servers, GROUP, [TOPIC], instance=f"in-{rack}", rack=rack)

            with consumer("east") as east, consumer("west") as west:
                wanted = {number: ["in-east", "in-west"][number % 2] for number in range(COUNT)}

                def settled() -> bool:
                    for one in (east, west):
                        one.poll(0.05)
                    known = report()
                    return known.settled and owned(known) == wanted

                wait_until(lambda: bool(tree.read([Read(DRAFT.group(GROUP))])[0].exists), "there is a group")
                wait_until(settled, f"owners are {wanted}")
                assert report().view.state.quarantined == {}
                generation = report().view.state.generation
                second.stop()
                ids = Read(BROKERS, Kind.CHILDREN)
                wait_until(lambda: tree.read([ids])[0].children == ("1",), "the broker is gone")
                known = report()  # what a coordinator that takes over now would want
                assert (known.view.brokers, known.moves()) == ({1: "east", 2: "west"}, [])
                second.start()
                wait_until(settled, f"owners are {wanted}")
                assert report().view.state.generation == generation
