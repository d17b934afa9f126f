"""A real broker's answers, as the mirror of topics needs them."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from zkcoord.core.topic_answers import Cluster, Described, Kind, Listed, Question, Told, shape_of
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import UnavailableError
from zkcoord.kafka.metadata import KafkaMetadata, _told

NOWHERE = "127.0.0.1:9"


@pytest.fixture
def metadata(kafka: KafkaBroker) -> Iterator[KafkaMetadata]:
    with KafkaMetadata(kafka.bootstrap_servers) as opened:
        yield opened


@pytest.mark.kafka
@pytest.mark.kafka4
def test_a_real_broker_tells_ids_shapes_and_itself_and_that_a_topic_is_missing(
    kafka: KafkaBroker, metadata: KafkaMetadata
) -> None:
    name, missing = f"told-{uuid.uuid4().hex[:8]}", f"none-{uuid.uuid4().hex[:8]}"
    create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET), name, 3)
    partitions = dict.fromkeys(range(3), (kafka.broker_id,))
    listed = metadata.answer(Question(Kind.LIST))
    assert isinstance(listed, Listed)
    assert (listed.shapes[name], listed.whole) == (shape_of(partitions), True)
    assert missing not in listed.shapes
    assert gc.isenabled()
    described = metadata.answer(Question(Kind.DESCRIBE, (name, missing)))
    assert isinstance(described, Described)
    told = described.topics[name]
    assert told.partitions == partitions
    assert told.topic_id is not None and len(told.topic_id) == 22
    assert not set("+/=") & set(told.topic_id)
    assert described.topics[missing] == Told(missing=True)
    cluster = metadata.answer(Question(Kind.CLUSTER))
    assert isinstance(cluster, Cluster)
    assert cluster.cluster_id == listed.cluster_id
    assert [(number, one.host, one.rack) for number, one in cluster.brokers.items()] == [
        (kafka.broker_id, "127.0.0.1", None)
    ]
    whole, nameless = metadata.whole()
    assert (whole.topics[name].topic_id, nameless) == (told.topic_id, ())


@pytest.mark.parametrize(
    ("spelled", "topic_id"),
    [("J9yFzcT8Sdqog+R1XZ7J/A", "J9yFzcT8Sdqog-R1XZ7J_A"), ("A" * 22, None), ("", None), ("None", None)],
)
def test_an_id_is_spelled_as_kafka_spells_it_and_one_of_zeros_is_none(spelled: str, topic_id: str | None) -> None:
    partition = SimpleNamespace(id=0, replicas=[SimpleNamespace(id=2), SimpleNamespace(id=1)])
    assert _told(SimpleNamespace(topic_id=spelled, partitions=[partition])) == Told(topic_id, {0: (2, 1)})


def test_a_list_leaves_out_what_has_an_error_and_names_that_no_command_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {
        name: SimpleNamespace(partitions={0: SimpleNamespace(replicas=[1])}, error=error)
        for name, error in (("t", None), ("two words", None), ("broken", "LEADER_NOT_AVAILABLE"))
    }
    one = SimpleNamespace(host="h", port=9092)
    with KafkaMetadata(NOWHERE) as metadata:
        for brokers, controller in (({1: one}, 1), ({1: one}, -1), ({}, 1)):
            told = SimpleNamespace(topics=found, brokers=brokers, controller_id=controller, cluster_id="c")
            monkeypatch.setattr(metadata._client, "list_topics", lambda _seconds, told=told: told)
            whole = bool(brokers) and controller >= 0
            assert metadata.answer(Question(Kind.LIST)) == Listed("c", frozenset(brokers), {"t": "0:1"}, whole)
            with pytest.raises(UnavailableError, match="broken"):
                metadata.whole()  # otherwise the switch would think that the topic was deleted


@pytest.mark.parametrize("question", [Question(Kind.LIST), Question(Kind.DESCRIBE, ("t",)), Question(Kind.CLUSTER)])
def test_silent_brokers_are_away_and_miss_no_topic(question: Question) -> None:
    with KafkaMetadata(NOWHERE, timeout_ms=300) as metadata, pytest.raises(UnavailableError):
        metadata.answer(question)
    assert gc.isenabled()
