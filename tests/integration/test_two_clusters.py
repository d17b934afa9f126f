"""F223, F224: two clusters of Kafka whose brokers use two chroots of one ZooKeeper, and programs that confuse them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.cli.main import cli
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.errors import UsageError
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.brokers_move import cluster_id_of
from zkcoord.tree.paths import CLUSTER_ID, DRAFT, FROM_KAFKA, SCHEMA
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Kind, Read

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

TOPIC, GROUP, RECORDS = "clicks", "g", 10


class One(NamedTuple):
    """A cluster: where its brokers and their ZooKeeper are, and its id."""

    zookeeper: str
    servers: str
    cluster_id: str


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[One, One]]:
    """Both have a topic of the same name, with records."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(fsync=False))
        yield (_begin(stack, f"{zookeeper.hosts}/a"), _begin(stack, f"{zookeeper.hosts}/b"))


def _begin(stack: ExitStack, zookeeper: str) -> One:
    servers = stack.enter_context(EmbeddedKafka(zookeeper)).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": servers}, logger=QUIET)
    for _ in range(RECORDS):
        producer.produce(TOPIC, zookeeper.encode(), partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    with Tree(zookeeper) as tree:
        named = cluster_id_of(tree.read([Read(CLUSTER_ID)])[0])
    assert named is not None
    return One(zookeeper, servers, named)


def coordinator(stack: ExitStack, zookeeper: str, **settings: Any) -> Coordinator:
    """One that serves until the stack ends."""
    serving = Coordinator(zookeeper, **settings)
    serving.start()
    stack.callback(serving.stop)
    return serving


def committed(zookeeper: str) -> list[str]:
    """The partitions of the topic with an offset of the group, in the layout draft."""
    with Tree(zookeeper) as tree:
        return list(tree.read([Read(DRAFT.topic_offsets(GROUP, TOPIC), Kind.CHILDREN)])[0].children)


def names_both(told: object, mine: One, other: One) -> bool:
    """True when the error says which brokers are of which cluster, and which the tree's is."""
    text = f"the brokers at {other.servers} are of the cluster {other.cluster_id!r}, the tree's topics of "
    return f"{text}{mine.cluster_id!r}" in str(told)


def test_f224_a_consumer_with_brokers_of_another_cluster_reads_nothing_and_commits_nothing(
    clusters: tuple[One, One],
) -> None:
    mine, other = clusters
    with ExitStack() as stack:
        coordinator(stack, mine.zookeeper)
        wrong = KafkaConsumer(mine.zookeeper, other.servers, GROUP, [TOPIC], from_beginning=True)
        stack.callback(wrong.close)
        read = []
        with pytest.raises(UsageError) as told:
            for _ in range(int(PATIENCE_SECONDS / 0.2)):
                read.append(wrong.poll(0.2))
        assert names_both(told.value, mine, other)
        assert set(read) <= {None}
        words = ["consume", "--zookeeper", mine.zookeeper, "--bootstrap-servers", other.servers]
        ran = CliRunner().invoke(cli, [*words, "--group", GROUP, "--topic", TOPIC, "--from-beginning"])
        assert ran.exit_code == 2 and names_both(ran.output, mine, other)
        assert committed(mine.zookeeper) == []
        with KafkaConsumer(mine.zookeeper, mine.servers, GROUP, [TOPIC], from_beginning=True) as right:
            found = [message.value() for message in iter_some(right)]
        assert found == [mine.zookeeper.encode()] * RECORDS
        assert committed(mine.zookeeper) == ["0"]


def iter_some(consumer: KafkaConsumer) -> Iterator[Any]:
    """The topic's records."""
    left = RECORDS
    for message in consumer:
        yield message
        left -= 1
        if not left:
            return


def test_f223_a_new_tree_beside_one_cluster_takes_no_topics_from_another(
    clusters: tuple[One, One], caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = clusters
    caplog.set_level("WARNING", "zkcoord")
    zookeeper = other.zookeeper  # no tree stands there yet
    with ExitStack() as stack:
        wrong = coordinator(stack, zookeeper, topics=FROM_KAFKA, bootstrap_servers=mine.servers)
        told = f"of the cluster {mine.cluster_id!r}, and /cluster/id beside this tree names {other.cluster_id!r}"
        wait_until(lambda: told in caplog.text, "it is told")
        with Tree(zookeeper) as tree:
            assert decode_schema(tree.read([Read(SCHEMA)])[0].data).cluster_id == ""
        wrong.stop()
        coordinator(stack, zookeeper, topics=FROM_KAFKA, bootstrap_servers=other.servers)
        with Tree(zookeeper) as tree:
            wait_until(
                lambda: decode_schema(tree.read([Read(SCHEMA)])[0].data).cluster_id == other.cluster_id, "it is named"
            )
        with KafkaConsumer(zookeeper, mine.servers, GROUP, [TOPIC], from_beginning=True) as confused:
            with pytest.raises(UsageError) as said:
                while confused.poll(0.2) is None:
                    """The error comes."""
            assert names_both(said.value, other, mine)
