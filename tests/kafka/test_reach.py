"""Reports whether Kafka can be reached: one report when it cannot, and one when it can again, on a clock of the
test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.kafka.helpers import Broker, Coordinator, Open, read
from tests.shell.zk_world import Proxy
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.kafka import reach
from zkcoord.kafka.client import NATIVE_LOG
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.log_throttle import LogThrottle, NativeLines
from zkcoord.kafka.reach import TIMES, Reach

REFUSED = UnavailableError("Kafka at h:1 cannot be reached: refused; check that it runs")


class Cluster:
    """A client whose troubles and answers the test chooses."""

    def __init__(self) -> None:
        self.trouble: UnavailableError | None = None
        self.up = False
        self.asked = 0

    def take_trouble(self) -> UnavailableError | None:
        trouble, self.trouble = self.trouble, None
        return trouble

    def answers(self, seconds: float) -> bool:
        self.asked += 1
        return self.up


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    monkeypatch.setattr(reach.LOG, "filters", [LogThrottle()])
    with caplog.at_level(logging.INFO, "zkcoord"):
        yield caplog


def events(said: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return level and event of the reports, without librdkafka's own lines and the records of its attempts."""
    told = [(r.levelname, getattr(r, "zkcoord_event", "-")) for r in said.records if r.name != NATIVE_LOG.name]
    return [one for one in told if one != ("INFO", "-")]


def test_f64_a_kafka_that_is_away_is_told_once_and_its_return_once(said: pytest.LogCaptureFixture) -> None:
    cluster, clock = Cluster(), [0]
    seen = Reach("g", cluster, lambda: clock[0])
    seen.look(heard=False)
    assert (cluster.asked, seen.error) == (0, None)  # there is no request while nothing is wrong
    for _ in range(50):  # as librdkafka logs its attempts
        cluster.trouble = REFUSED
        seen.look(heard=False)
        clock[0] += TIMES.check_ms // 10
    assert (cluster.asked, seen.error) == (5, REFUSED)
    cluster.up = True
    clock[0] += TIMES.check_ms
    seen.look(heard=False)
    assert seen.error is None
    clock[0] += TIMES.check_ms
    seen.look(heard=False)
    assert cluster.asked == 6
    assert events(said) == [("WARNING", "kafka_away"), ("NOTICE", "kafka_back")]
    assert said.messages[0] == f'kafka_away group=g why="{REFUSED}; still trying"'


def test_f64_a_message_tells_that_kafka_is_back(said: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    seen = Reach("g", cluster, lambda: 0)
    seen.failed(REFUSED)
    seen.look(heard=True)
    assert (seen.error, cluster.asked) == (None, 0)
    assert events(said) == [("WARNING", "kafka_away"), ("NOTICE", "kafka_back")]


def test_f64_one_broker_of_several_that_is_away_is_told_but_kafka_is_not_away(said: pytest.LogCaptureFixture) -> None:
    cluster, clock = Cluster(), [0]
    cluster.up = True
    seen = Reach("g", cluster, lambda: clock[0])
    for _ in range(5):
        cluster.trouble = REFUSED
        seen.look(heard=False)
        clock[0] += TIMES.check_ms
    assert seen.error is None
    assert events(said) == [("WARNING", "-")]  # the same line is logged only from time to time
    assert said.messages == [f"other brokers answer, but: {REFUSED}"]


def test_f64_librdkafkas_lines_are_marked_and_connection_lines_are_no_errors(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NATIVE_LOG, "filters", [NativeLines()])
    with caplog.at_level(logging.INFO, NATIVE_LOG.name):
        NATIVE_LOG.error("FAIL [rdkafka#producer-2] [thrd:h:1/bootstrap]: h:1/bootstrap: refused")
        NATIVE_LOG.warning("CONFWARN [rdkafka#producer-2] [thrd:app]: no such thing")
    with caplog.at_level(logging.WARNING, NATIVE_LOG.name):
        NATIVE_LOG.error("FAIL [rdkafka#producer-2] [thrd:h:1/bootstrap]: h:1/bootstrap: refused")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "librdkafka: FAIL [rdkafka#producer-2] [thrd:h:1/bootstrap]: h:1/bootstrap: refused"),
        ("WARNING", "librdkafka: CONFWARN [rdkafka#producer-2] [thrd:app]: no such thing"),
    ]


def test_f64_a_consumer_waits_for_a_kafka_that_goes_away_and_reads_on(
    broker: Broker, coordinator: Coordinator, said: pytest.LogCaptureFixture
) -> None:
    """The consumer connects through a `Way` that is cut. librdkafka's broker names the `Way` as its address, so even
    the first request goes through it."""
    topic = broker.topic([3])
    partition = TopicPartition(topic, 0)
    with Proxy(int(broker.bootstrap_servers.rpartition(":")[2])) as way:
        way.down()
        consumer = KafkaConsumer("zk:2181", way.hosts, "g", [topic], membership=coordinator)
        with consumer:
            coordinator.give({partition: 0})
            assert consumer.poll(0.5) is None
            assert consumer.away is not None
            assert f"Kafka at {way.hosts} cannot be reached: " in str(consumer.away)
            way.up()
            assert read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
            wait_until(lambda: consumer.poll(0) is None and consumer.away is None, "it is back")
            wait_until(lambda: consumer.ask_kafka() is None, "it answers within seconds")
    assert events(said)[0] == ("WARNING", "kafka_away")
    assert ("NOTICE", "kafka_back") in events(said)


def test_f64_a_closed_port_is_told_before_the_group_is_joined(
    open_consumer: Open, coordinator: Coordinator, said: pytest.LogCaptureFixture
) -> None:
    consumer = KafkaConsumer("zk:2181", "127.0.0.1:1", "g", ["t"], membership=coordinator)
    with consumer:
        assert "Connection refused; check that it runs, the address, and security.protocol" in str(consumer.away)
        assert isinstance(consumer.ask_kafka(), UnavailableError)
    assert events(said) == [("WARNING", "kafka_away")]
