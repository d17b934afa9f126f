"""A real Kafka broker as a child process: it comes up, keeps its data, and listens at home only."""

import base64
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.embedded.sockets import LOOPBACK, listening
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedController, EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.embedded.kafka_requests import metadata
from zkcoord.embedded.kafka_tools import kafka_tool
from zkcoord.errors import UnavailableError, UsageError

pytestmark = [pytest.mark.kafka, pytest.mark.kafka4]

DEADLINE_S = 120.0  # only what fails takes so long


def topics(server: KafkaBroker) -> dict[str, int]:
    """Name → number of partitions."""
    client = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    return {name: len(topic.partitions) for name, topic in client.list_topics(timeout=DEADLINE_S).topics.items()}


def create(server: KafkaBroker, name: str, partitions: int, **config: str) -> None:
    client = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    create_topic(client, name, partitions, config=config)


def send(server: KafkaBroker, topic: str, value: bytes, at_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    producer.produce(topic, value, partition=0, timestamp=at_ms)
    assert producer.flush(DEADLINE_S) == 0


def first(server: KafkaBroker, topic: str, group: str) -> tuple[bytes, int]:
    """The first record, and the group's committed offset after it."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        record = consumer.poll(DEADLINE_S)
        assert record is not None
        assert record.error() is None
        consumer.commit(record, asynchronous=False)
        return record.value(), consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)[0].offset
    finally:
        consumer.close()


def test_records_and_offsets_come_and_go(kafka: KafkaBroker) -> None:
    create(kafka, "embedded-clicks", 3)
    send(kafka, "embedded-clicks", b"hello")
    assert first(kafka, "embedded-clicks", "embedded-group") == (b"hello", 1)
    known = metadata(kafka.port)
    assert (known.brokers, known.controller) == (frozenset({0}), 0)
    assert {f"embedded-clicks-{n}" for n in range(3)} <= known.led


def test_it_listens_on_the_loopback_only(kafka: KafkaBroker) -> None:
    assert kafka.pid is not None
    found = listening(kafka.pid)
    assert f"{LOOPBACK}:{kafka.port:04X}" in found
    assert {address.partition(":")[0] for address in found} == {LOOPBACK}
    assert len(found) == (2 if isinstance(kafka, EmbeddedKRaft) else 1)  # it is its own controller


def test_a_topic_that_nobody_created_is_not_there(kafka: KafkaBroker) -> None:
    consumer = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    consumer.list_topics("embedded-absent", timeout=DEADLINE_S)
    assert "embedded-absent" not in topics(kafka)


def survives(server: KafkaBroker) -> None:
    """Its data are there after a stop, and after a kill."""
    create(server, "clicks", 50)
    send(server, "clicks", b"kept")
    for end in (server.stop, server.kill):
        end()
        assert not server.ready()
        with pytest.raises(UnavailableError, match="does not answer"):
            metadata(server.port)
        server.start()
        assert topics(server)["clicks"] == 50
        assert first(server, "clicks", "g")[0] == b"kept"


def test_data_survive_a_stop_and_a_kill_and_it_serves_them_when_start_returns(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(fsync=False) as zookeeper,
        EmbeddedKafka(f"{zookeeper.hosts}/kafka", tmp_path, zookeeper_session_timeout_ms=2_000) as server,
    ):
        survives(server)


def test_data_of_a_broker_without_zookeeper_survive_too_and_its_own_tools_reach_it(tmp_path: Path) -> None:
    with EmbeddedKRaft(tmp_path) as server:
        survives(server)
        told = kafka_tool("kafka-topics", "--bootstrap-server", server.bootstrap_servers, "--list")
        assert "clicks" in told.splitlines()
    assert tmp_path.is_dir()


def test_records_of_any_age_are_kept(tmp_path: Path) -> None:
    """A broker removes those that are older than a week, when it looks: every five minutes by default."""
    soon = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "50"}
    with EmbeddedKRaft(tmp_path, settings=soon) as server:
        for name, config in (("kept", {}), ("short", {"retention.ms": "1000"})):
            create(server, name, 1, **config)
            send(server, name, b"old", at_ms=1_700_000_000_000)
        client = AdminClient({"bootstrap.servers": server.bootstrap_servers})

        def starts(topic: str) -> int:
            partition = TopicPartition(topic, 0)
            return int(client.list_offsets({partition: OffsetSpec.earliest()})[partition].result(DEADLINE_S).offset)

        wait_until(lambda: starts("short") == 1, "the broker has looked")
        create(server, "later", 1, **{"retention.ms": "1000"})
        send(server, "later", b"old", at_ms=1_700_000_000_000)
        wait_until(lambda: starts("later") == 1, "it has looked once more, at all topics")
        assert starts("kept") == 0


@pytest.mark.parametrize("version", [KAFKA_VERSION, KAFKA_4_VERSION])
def test_f239_a_clusters_id_may_begin_with_a_dash(tmp_path: Path, version: str) -> None:
    """One in 64 of Kafka's own does, with ZooKeeper: the tool that formats took it for an option."""
    cluster_id = base64.urlsafe_b64encode(b"\xfb" + bytes(15)).decode("ascii").rstrip("=")
    assert cluster_id.startswith("-")
    with EmbeddedController(cluster_id, tmp_path, version=version):
        formatted = (tmp_path / "data" / "meta.properties").read_text("utf-8").splitlines()
    assert f"cluster.id={cluster_id}" in formatted


def test_kafka_4_is_refused_a_zookeeper() -> None:
    with pytest.raises(UsageError, match=r"Kafka 4\.1\.0 knows no ZooKeeper: use EmbeddedKRaft"):
        EmbeddedKafka("127.0.0.1:1", version="4.1.0")


def test_a_broker_that_cannot_start_says_what_it_said(tmp_path: Path) -> None:
    server = EmbeddedKafka("127.0.0.1:1", tmp_path, settings={"num.io.threads": "many"})
    with pytest.raises(UnavailableError, match=r"(?s)Kafka ended with code 1 instead of serving.*num\.io\.threads"):
        server.start()


class Refused(EmbeddedKafka):
    """Ends at its first start with these last words, and serves at the second."""

    def __init__(self, folder: Path, said: str) -> None:
        super().__init__("127.0.0.1:1", folder)
        self.said, self.starts = said, 0

    def launch(self) -> None:
        self.starts += 1

    def await_ready(self) -> None:
        if self.starts == 1:
            raise UnavailableError(self.said)


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.zookeeper.KeeperException$NodeExistsException: KeeperErrorCode = NodeExists",
        "java.lang.NullPointerException: ...\n\tat kafka.zk.KafkaZkClient$CheckedEphemeral.getAfterNodeExists(",
    ],
)
def test_it_starts_again_when_the_killed_broker_s_node_is_there_or_goes_at_that_moment(
    tmp_path: Path, said: str
) -> None:
    assert Refused(tmp_path, said).start().starts == 2
    with pytest.raises(UnavailableError, match="another reason"):
        Refused(tmp_path, "another reason").start()
