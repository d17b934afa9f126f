"""A client of librdkafka that cannot reconnect to its brokers is replaced, and its work goes on."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kafka.helpers import PATIENCE_SECONDS, QUIET, Broker, Coordinator, Open, read
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.test_reach import Cluster
from tests.shell.zk_world import Proxy
from tests.sim.kafka import SimMessage
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError, ZkcoordError
from zkcoord.kafka import client
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.fetcher import fetch_settings
from zkcoord.kafka.reach import TIMES, Reach, Times
from zkcoord.kafka.renewed import RENEW_MS

IMPATIENT = Times(check_ms=50, silent_ms=100, renew_ms=100)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
AWAY = UnavailableError("Kafka at h:1 cannot be reached: no brokers; check that it runs")


class Forgetful:
    """librdkafka's consumer, or admin client, without any broker: it sends no requests and reports nothing by
    itself."""

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
    """A client that is connected to a broker whose answer names no brokers."""

    def list_topics(self, *_topics: str, timeout: float) -> Any:
        return SimpleNamespace(brokers={}, cluster_id="c")


class Silent(Cluster):
    """A cluster whose absence only a request shows."""

    def answers(self, seconds: float) -> bool:
        self.trouble = None if self.up else AWAY
        return super().answers(seconds)


def test_f269_a_long_silence_is_asked_about_and_an_unanswered_client_replaced() -> None:
    cluster, clock = Silent(), [0]
    seen = Reach("g", cluster, lambda: clock[0])
    cluster.up = True
    replaced = list[int]()

    def look_until(end_ms: int, fetching: bool = True) -> None:
        while clock[0] < end_ms:
            replaced.extend([clock[0]] * seen.look(heard=False, fetching=fetching))
            clock[0] += TIMES.check_ms

    look_until(2 * TIMES.silent_ms, fetching=False)
    assert cluster.asked == 0
    seen.look(heard=True)
    began = clock[0]
    look_until(began + 2 * TIMES.silent_ms + TIMES.check_ms)
    assert (cluster.asked, seen.error, replaced) == (2, None, [])
    cluster.up = False
    look_until(began + 3 * TIMES.silent_ms + 2 * RENEW_MS + 4 * TIMES.check_ms)
    assert seen.error is AWAY
    first, second = replaced
    assert second - first == RENEW_MS + TIMES.check_ms
    cluster.up = True
    look_until(clock[0] + 3 * RENEW_MS)
    assert (seen.error, len(replaced)) == (None, 2)


def test_an_answer_gives_a_client_that_had_none_all_its_time_again() -> None:
    cluster, clock = Silent(), [0]
    seen = Reach("g", cluster, lambda: clock[0])
    for _ in range(2):
        seen.failed(AWAY)
        assert not seen.look(heard=False)
        clock[0] += RENEW_MS - 1
        assert not seen.look(heard=False)
        seen.look(heard=True)


@pytest.mark.parametrize("forgetful", [Forgetful(), Starting()], ids=["none", "one that names none"])
def test_f269_a_consumer_whose_client_has_forgotten_all_brokers_reads_on_and_each_message_once(
    broker: Broker,
    open_consumer: Open,
    coordinator: Coordinator,
    forgetful: Forgetful,
) -> None:
    topic = broker.topic([3, 2])
    consumer = impatient(open_consumer())
    coordinator.give({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    assert sorted(read(consumer, 5)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    consumer._fetcher._native.close()
    consumer._fetcher._native = forgetful
    broker.produce(TopicPartition(topic, 0), [b"3", b"4"])
    broker.produce(TopicPartition(topic, 1), [b"2"])
    assert sorted(read(consumer, 3)) == [(0, 3), (0, 4), (1, 2)]
    assert (forgetful.ended, consumer.poll(0.2), consumer.away) == (True, None, None)


def impatient(consumer: KafkaConsumer, times: Times = IMPATIENT) -> KafkaConsumer:
    """Return the consumer, which replaces its client after a short time."""
    consumer._delivery.reach = Reach("g", consumer._fetcher, times=times)
    return consumer


def test_f300_a_consumer_goes_on_when_another_client_cannot_be_made_and_reads_on_when_one_can(
    broker: Broker, open_consumer: Open, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, tries = TopicPartition(broker.topic([2]), 0), list[object]()
    consumer = impatient(open_consumer())
    coordinator.give({partition: 0})
    assert read(consumer, 2) == [(0, 0), (0, 1)]
    fetcher, broken = consumer._fetcher, Forgetful()
    opens = fetcher._opens

    def refused() -> Any:
        tries.append(fetcher)
        raise UsageError("ssl.ca.location: no such file")

    fetcher._native.close()
    monkeypatch.setattr(broken, "incremental_unassign", lambda _: None, raising=False)
    fetcher._native, fetcher._opens = broken, refused  # type: ignore[assignment]
    wait_until(lambda: consumer.poll(0.1) is not None or len(tries) > 1, "another client is tried for")
    assert (broken.ended, fetcher.idle) == (False, False)
    fetcher._opens = opens
    broker.produce(partition, [b"2"])
    assert read(consumer, 1) == [(0, 2)]
    assert broken.ended


def test_f301_a_client_that_is_replaced_reads_nothing_of_another_cluster(
    broker: Broker, open_consumer: Open, coordinator: Coordinator
) -> None:
    """The brokers' host name now leads to another cluster, which has the same topic with as many records."""
    other, topic = Broker(), broker.topic([2])
    partition = TopicPartition(topic, 0)
    other.produce(partition, [b"0", b"1", b"2"])
    consumer = impatient(open_consumer())
    coordinator.give({partition: 0})
    assert read(consumer, 2) == [(0, 0), (0, 1)]
    consumer.commit()
    fetcher = consumer._fetcher
    fetcher._native.close()
    settings = fetch_settings("g", {})
    fetcher._native = Forgetful()
    fetcher._opens = lambda: client.open_consumer(
        other.bootstrap_servers, settings, fetcher._on_error, fetcher._on_broken
    )  # type: ignore[assignment]
    with pytest.raises(UsageError, match="is another cluster now"):
        wait_until(lambda: consumer.poll(0.1) is not None, "a message of the other cluster")
    with pytest.raises(UsageError, match="is another cluster now"):
        consumer.poll(0.1)
    assert (consumer.position(partition), coordinator.store) == (2, {partition: 2})


class Turned(Forgetful):
    """A client whose first answer is of the first cluster; its messages and later answers are of another cluster."""

    def __init__(self, first: str | None, partition: TopicPartition) -> None:
        super().__init__()
        self._clusters, self._message = chain([first], repeat("another")), SimMessage(partition, 2)
        self._fetching = False

    def list_topics(self, *_topics: str, timeout: float) -> Any:
        return SimpleNamespace(brokers={1: "h:1"}, cluster_id=next(self._clusters))

    def incremental_assign(self, _partitions: Any) -> None:
        self._fetching = True

    def poll(self, _seconds: float) -> Any:
        return self._message if self._fetching else None


def test_f301_a_replacement_clients_first_read_of_another_cluster_is_not_taken(
    broker: Broker, open_consumer: Open, coordinator: Coordinator
) -> None:
    """New connections lead to another cluster between that request and the first fetch. No connection has ended."""
    partition = TopicPartition(broker.topic([2]), 0)
    consumer = impatient(open_consumer())
    coordinator.give({partition: 0})
    assert read(consumer, 2) == [(0, 0), (0, 1)]
    fetcher = consumer._fetcher
    fetcher._native.close()
    fetcher._native = Forgetful()
    fetcher._opens = lambda: Turned(consumer._resets.cluster_id, partition)  # type: ignore[assignment]
    with pytest.raises(UsageError, match="is another cluster now"):
        wait_until(lambda: consumer.poll(0.1) is not None, "a message of the other cluster")
    assert consumer.position(partition) == 2


def test_f301_brokers_that_are_all_away_are_not_followed_by_those_of_another_cluster(
    coordinator: Coordinator,
) -> None:
    """librdkafka would connect to the address again, and go on with the other cluster after a second."""
    first, second, partition = MockCluster(1), MockCluster(1), TopicPartition(MockCluster.topic, 0)
    for cluster, count in ((first, 2), (second, 5)):
        producer = Producer({"bootstrap.servers": cluster.servers}, logger=QUIET)
        for _ in range(count):
            producer.produce(partition.topic, b"", partition=partition.partition)
        assert producer.flush(PATIENCE_SECONDS) == 0
    with Proxy(int(first.servers.rpartition(":")[2])) as way:
        consumer = KafkaConsumer("zk:2181", way.hosts, "g", [partition.topic], membership=coordinator)
        with impatient(consumer, Times(renew_ms=3_000)):
            coordinator.give({partition: 0})
            assert read(consumer, 2) == [(0, 0), (0, 1)]
            way._target_port = int(second.servers.rpartition(":")[2])
            way.cut()
            first.down(1)
            with pytest.raises(UsageError, match="is another cluster now"):
                wait_until(lambda: consumer.poll(0.1) is not None, "a message of the other cluster")
    assert coordinator.store == {partition: 2}


def test_f269_a_client_whose_questions_have_no_answer_for_long_asks_through_another_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, forgetful = TopicPartition(broker.topic([4]), 0), Forgetful()
    with KafkaClient(broker.bootstrap_servers, renew_ms=0) as asking:
        assert asking.ask_offsets([partition], "latest") == ({partition: 4}, {})
        assert asking._renewed._held is not None
        asking._renewed._held.client = forgetful
        monkeypatch.setattr(forgetful, "list_offsets", unanswered)
        assert asking.ask_offsets([], "latest") == ({}, {})
        found, failed = asking.ask_offsets([partition], "latest")
        assert (found, type(failed[partition]), forgetful.ended) == ({}, UnavailableError, True)
        assert asking.ask_offsets([partition], "latest") == ({partition: 4}, {})


@pytest.mark.parametrize(
    ("found", "failed", "answered"),
    [
        ({P0: 4}, {P1: AWAY}, True),
        ({}, {P0: UnknownPartitionError("no such topic"), P1: AWAY}, True),
        ({}, {P0: AWAY, P1: AWAY}, False),
    ],
)
def test_one_leader_that_answers_is_an_answer_also_when_it_says_no(
    found: dict[TopicPartition, int],
    failed: dict[TopicPartition, ZkcoordError],
    answered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KafkaClient, "_ask_leaders", lambda *_: (found, failed))
    with KafkaClient("127.0.0.1:9", renew_ms=0) as asking:
        first = asking._renewed._held
        assert asking.ask_offsets([P0, P1], "latest") == (found, failed)
        assert (asking._renewed._held is first) == answered


def unanswered(asked: Any, **_times: Any) -> Any:
    """Return a future for each, as librdkafka does; none of them is ever answered."""
    return {each: NoAnswer() for each in asked}


class NoAnswer:
    """The missing answer about one partition."""

    def result(self, _seconds: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
