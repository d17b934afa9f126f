"""F223, F224: two clusters of Kafka, each with a chroot of one ZooKeeper, and programs that confuse them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.integration.brokers import BOTH, source_of
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.cli.main import cli
from zkcoord.embedded import EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import UsageError
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, FROM_KAFKA, SCHEMA
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

TOPIC, GROUP, RECORDS = "clicks", "g", 10


class One(NamedTuple):
    """A cluster: where its brokers are, and its ZooKeeper, its id, and with what a coordinator is started there."""

    zookeeper: str
    servers: str
    cluster_id: str
    source: Mapping[str, Any]


@pytest.fixture(scope="module")
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[One, One]]:
    """Both have a topic of the same name, with records. The parameter: the brokers' version."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(fsync=False))
        yield (
            _begin(stack, zookeeper.hosts, "/a", request.param),
            _begin(stack, zookeeper.hosts, "/b", request.param),
        )


def _begin(stack: ExitStack, hosts: str, chroot: str, version: str) -> One:
    zookeeper = hosts + chroot
    if version == KAFKA_4_VERSION:
        with Tree(hosts) as tree:
            assert not tree.commit(Transaction(writes=(CreateNode(chroot),))).reason
        kafka: KafkaBroker = EmbeddedKRaft()
    else:
        kafka = EmbeddedKafka(zookeeper)  # which makes its chroot
    servers = stack.enter_context(kafka).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
    create_topic(admin, TOPIC, 1)
    producer = Producer({"bootstrap.servers": servers}, logger=QUIET)
    for _ in range(RECORDS):
        producer.produce(TOPIC, zookeeper.encode(), partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return One(zookeeper, servers, admin.list_topics(timeout=PATIENCE_SECONDS).cluster_id, source_of(kafka))


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


def named(zookeeper: str) -> str:
    """The cluster that the tree's schema names; "" before it names one."""
    with Tree(zookeeper) as tree:
        node = tree.read([Read(SCHEMA)])[0]
    return decode_schema(node.data).cluster_id if node.exists else ""


def names_both(told: object, mine: One, other: One) -> bool:
    """True when the error says which brokers are of which cluster, and which the tree's is."""
    text = f"the brokers at {other.servers} are of the cluster {other.cluster_id!r}, the tree's topics of "
    return f"{text}{mine.cluster_id!r}" in str(told)


@pytest.mark.parametrize("clusters", BOTH, indirect=True)
def test_f224_a_consumer_with_brokers_of_another_cluster_reads_nothing_and_commits_nothing(
    clusters: tuple[One, One],
) -> None:
    mine, other = clusters
    with ExitStack() as stack:
        coordinator(stack, mine.zookeeper, **mine.source)
        if mine.source:
            wait_until(lambda: named(mine.zookeeper) == mine.cluster_id, "the tree names its cluster")
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


@pytest.mark.parametrize("clusters", [KAFKA_VERSION], indirect=True)
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
        assert named(zookeeper) == ""
        wrong.stop()
        coordinator(stack, zookeeper, topics=FROM_KAFKA, bootstrap_servers=other.servers)
        wait_until(lambda: named(zookeeper) == other.cluster_id, "it is named")
        with KafkaConsumer(zookeeper, mine.servers, GROUP, [TOPIC], from_beginning=True) as confused:
            with pytest.raises(UsageError) as said:
                while confused.poll(0.2) is None:
                    """The error comes."""
            assert names_both(said.value, other, mine)
