"""A client of librdkafka's that does not find back to its brokers is replaced, and what it did goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.kafka.helpers import Broker, Coordinator, Open, read
from tests.kafka.test_reach import Cluster
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.kafka import reach, renewed
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.reach import CHECK_MS, RENEW_MS, SILENT_MS, Reach
from zkcoord.kafka.renewed import RENEW_SECONDS, Renewed

AWAY = UnavailableError("Kafka at h:1 cannot be reached: no brokers; check that it runs")


class Forgetful:
    """librdkafka's consumer, or admin client, without any broker: it tells nothing by itself, and asks nobody."""

    def __init__(self) -> None:
        self.ended = False

    def poll(self, _seconds: float) -> None:
        return

    def list_topics(self, *_topics: str, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def list_offsets(self, asked: Any, **_times: Any) -> Any:
        return {}

    def close(self) -> None:
        self.ended = True

    def __exit__(self, *_: object) -> None:
        self.ended = True


class Starting(Forgetful):
    """One that is connected to a broker which names no brokers."""

    def list_topics(self, *_topics: str, timeout: float) -> Any:
        return SimpleNamespace(brokers={}, cluster_id="c")


class Silent(Cluster):
    """A cluster of which only a question tells that it is away."""

    def answers(self, seconds: float) -> bool:
        self.trouble = None if self.up else AWAY
        return super().answers(seconds)


def test_f269_a_long_silence_is_asked_about_and_a_client_that_has_no_answer_for_long_is_to_be_replaced() -> None:
    cluster, clock = Silent(), [0]
    seen = Reach("g", cluster, lambda: clock[0])
    cluster.up = True
    replaced = list[int]()

    def look_until(end_ms: int, fetching: bool = True) -> None:
        while clock[0] < end_ms:
            replaced.extend([clock[0]] * seen.look(heard=False, fetching=fetching))
            clock[0] += CHECK_MS

    look_until(2 * SILENT_MS, fetching=False)
    assert cluster.asked == 0
    seen.look(heard=True)
    began = clock[0]
    look_until(began + 2 * SILENT_MS + CHECK_MS)
    assert (cluster.asked, seen.error, replaced) == (2, None, [])
    cluster.up = False
    look_until(began + 3 * SILENT_MS + 2 * RENEW_MS + 3 * CHECK_MS)
    assert seen.error is AWAY
    first, second = replaced
    assert second - first == RENEW_MS
    cluster.up = True
    look_until(clock[0] + 3 * RENEW_MS)
    assert (seen.error, len(replaced)) == (None, 2)


@pytest.mark.parametrize("forgetful", [Forgetful(), Starting()], ids=["none", "one that names none"])
def test_f269_a_consumer_whose_client_has_forgotten_all_brokers_reads_on_and_each_message_once(
    broker: Broker,
    open_consumer: Open,
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    forgetful: Forgetful,
) -> None:
    monkeypatch.setattr(reach, "SILENT_MS", 100)
    monkeypatch.setattr(reach, "RENEW_MS", 100)
    monkeypatch.setattr(reach, "CHECK_MS", 50)
    topic = broker.topic([3, 2])
    consumer = open_consumer()
    coordinator.give({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    assert sorted(read(consumer, 5)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    consumer._fetcher._native.close()
    consumer._fetcher._native = forgetful
    broker.produce(TopicPartition(topic, 0), [b"3", b"4"])
    broker.produce(TopicPartition(topic, 1), [b"2"])
    assert sorted(read(consumer, 3)) == [(0, 3), (0, 4), (1, 2)]
    assert (forgetful.ended, consumer.poll(0.2), consumer.away) == (True, None, None)


def test_f269_a_client_whose_questions_have_no_answer_for_long_asks_through_another_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "RENEW_SECONDS", 0.0)
    partition, forgetful = TopicPartition(broker.topic([4]), 0), Forgetful()
    with KafkaClient(broker.bootstrap_servers) as client:
        assert client.ask_offsets([partition], "latest") == ({partition: 4}, {})
        client._renewed.client = forgetful
        monkeypatch.setattr(forgetful, "list_offsets", unanswered)
        found, failed = client.ask_offsets([partition], "latest")
        assert (found, type(failed[partition]), forgetful.ended) == ({}, UnavailableError, True)
        assert client.ask_offsets([partition], "latest") == ({partition: 4}, {})


def unanswered(asked: Any, **_times: Any) -> Any:
    """As librdkafka's own: an answer for each that never comes."""
    return {each: NoAnswer() for each in asked}


class NoAnswer:
    """Of one partition."""

    def result(self, _seconds: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_f269_a_client_that_somebody_uses_or_that_was_answered_or_is_closed_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = list[Forgetful]()
    clients = Renewed(lambda: opened.append(Forgetful()) or opened[-1])  # type: ignore[func-returns-value]
    clients.heard(answered=False)
    assert len(opened) == 1  # for long: not yet
    monkeypatch.setattr(renewed, "RENEW_SECONDS", 0.0)
    clients.heard(answered=True)
    with clients.used():
        clients.heard(answered=False)
    assert (clients.client, len(opened)) == (opened[0], 1)
    clients.heard(answered=False)
    assert (clients.client, [each.ended for each in opened]) == (opened[1], [True, False])
    assert (clients.close(), clients.close()) == (opened[1], None)
    clients.heard(answered=False)
    assert len(opened) == 2


def test_an_answer_begins_the_time_without_one_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, opened = [0.0], list[Forgetful]()
    monkeypatch.setattr(renewed, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    clients = Renewed(lambda: opened.append(Forgetful()) or opened[-1])  # type: ignore[func-returns-value]
    for seconds, answered in ((0, False), (5, True), (9, False), (12, False), (18, False)):
        clock[0] = seconds
        clients.heard(answered)
    assert len(opened) == 1
    clock[0] = 9 + RENEW_SECONDS
    clients.heard(answered=False)
    assert len(opened) == 2
