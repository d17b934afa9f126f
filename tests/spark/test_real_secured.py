"""A Kafka with TLS and a password: the settings of a structured streaming job work for all clients of zkcoord, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException

from tests.certificate import CERTIFICATE, KEY
from tests.integration.brokers import BOTH
from tests.spark.conftest import Topic
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, Seen, coordinating
from zkcoord.embedded import EmbeddedController, EmbeddedKafka, EmbeddedKRaft
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.embedded.kraft import new_cluster_id
from zkcoord.embedded.server import LOOPBACK, free_ports
from zkcoord.errors import RefusedError
from zkcoord.kafka import KafkaConsumer
from zkcoord.shell.zk.blocking import Tree
from zkcoord.spark import SparkConsumer, register_source
from zkcoord.spark.readers.python import SILENT, Slice, read_slices
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_REAL_SERVERS
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(params=BOTH)
def secured(chroot: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[KafkaBroker, str]]:
    """A broker, and the address of its listener with TLS and a password."""
    plain, port = free_ports(2)
    store = tmp_path / "server.pem"
    store.write_text(KEY + CERTIFICATE)
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    settings = {
        "listeners": f"PLAINTEXT://{LOOPBACK}:{plain},SASL_SSL://{LOOPBACK}:{port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN} user_etl="a b";',
    }
    with ExitStack() as stack:
        if request.param == KAFKA_4_VERSION:
            controller = stack.enter_context(EmbeddedController(new_cluster_id()))
            settings["listener.security.protocol.map"] = PROTOCOLS
            settings["advertised.listeners"] = settings["listeners"]
            broker: KafkaBroker = EmbeddedKRaft(port=plain, controller=controller, settings=settings)
        else:
            broker = EmbeddedKafka(chroot, port=plain, settings=settings)
        yield stack.enter_context(broker), f"{LOOPBACK}:{port}"


def as_in_java(ca: Path, password: str = "a b") -> dict[str, str]:
    """Return the settings as options of Spark's own source."""
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN} username="etl" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(ca),
    }


def as_in_librdkafka(ca: Path) -> dict[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "etl",
        "sasl.password": "a b",
        "ssl.ca.location": str(ca),
    }


def test_security_settings_in_either_spelling_reach_every_client(
    spark: SparkSession, secured: tuple[KafkaBroker, str], chroot: str, tmp_path: Path
) -> None:
    broker, address = secured
    topic = Topic(broker, 2)
    topic.fill(0, 20)
    topic.fill(1, 5)
    records = {(0, offset): 1 for offset in range(20)} | {(1, offset): 1 for offset in range(5)}
    ca = tmp_path / "ca.pem"

    def consumer(group: str, reader: Any, config: dict[str, str]) -> SparkConsumer:
        choices: dict[str, Any] = {"starting_offsets": "earliest", "reader": reader, "config": config}
        return SparkConsumer(spark, chroot, address, group, [topic.name], **choices)

    with coordinating(chroot, **topic.source):
        for reader, config in (("kafka", as_in_librdkafka(ca)), ("python", as_in_java(ca))):
            seen = Seen()
            assert consumer(reader, reader, config).run(seen.process_as("a"), max_batches=1) == 1
            assert seen.records == records
        assert streamed(spark, chroot, address, topic, tmp_path) == sorted(records)
        with pytest.raises(RefusedError, match="check the client's credentials"):
            consumer("refused", "kafka", as_in_java(ca, "wrong")).run(lambda df, batch: None)
        wrong = {**as_in_librdkafka(ca), "sasl.password": "wrong"}
        plain = KafkaConsumer(chroot, address, "refused", [topic.name], config=wrong)
        with closing(plain), pytest.raises(RefusedError, match="check the client's credentials"):
            plain.start()
    tree = Tree(chroot)
    try:
        assert not tree.read([Read(DRAFT.group("refused"))])[0].exists, "who may not read has not joined"
    finally:
        tree.close()


def test_f257_a_client_that_was_kept_serves_neither_other_credentials_nor_another_certificate(
    secured: tuple[KafkaBroker, str], tmp_path: Path, own_clients: list[Any]
) -> None:
    broker, address = secured
    topic, ca = Topic(broker, 1), tmp_path / "ca.pem"
    topic.fill(0, 10)

    def read(timeout_ms: int = 60_000, **changed: str) -> int:
        settings = {"bootstrap.servers": address, "group.id": "kept", **as_in_librdkafka(ca), **changed}
        found = read_slices(settings, [Slice(topic.name, 0, 0, 10)], timeout_ms=timeout_ms, keep=True)
        return sum(each.num_rows for each in found)

    assert (read(), read(), len(own_clients)) == (10, 10, 1)
    with pytest.raises(RuntimeError, match=SILENT):
        read(timeout_ms=3_000, **{"sasl.password": "wrong"})
    assert (read(), len(own_clients)) == (10, 2)
    ca.write_text("no certificate any more")
    with pytest.raises(KafkaException, match=r"ssl\.ca\.location"):
        read()
    ca.write_text(CERTIFICATE)
    assert (read(), len(own_clients)) == (10, 3)


def streamed(spark: SparkSession, zookeeper: str, address: str, topic: Topic, folder: Path) -> list[tuple[int, int]]:
    """Return the records that a query of the source reads."""
    register_source(spark)
    found: list[tuple[int, int]] = []

    def process(df: DataFrame, number: int) -> None:
        found.extend((row.partition, row.offset) for row in df.select("partition", "offset").collect())

    rows = (
        spark.readStream.format("zkcoord")
        .option("zookeeper", zookeeper)
        .option("kafka.bootstrap.servers", address)
        .option("group", "stream")
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("joinWaitMs", 60_000)
        .options(**as_in_java(folder / "ca.pem"))
        .load()
    )
    writer = rows.writeStream.foreachBatch(process).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(int(DEADLINE_S))
    return sorted(found)
