"""Fixtures of the Kafka tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kafka.helpers import Broker, Coordinator
from tests.waiting import wait_until
from zkcoord.kafka import fetcher, reach
from zkcoord.kafka.client import NATIVE_LOG
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.log_throttle import LogThrottle


@pytest.fixture(scope="session")
def broker() -> Broker:
    """One mock broker for the session; each test has topics of its own."""
    return Broker()


@pytest.fixture(autouse=True)
def nothing_was_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the lines that librdkafka logged in an earlier test."""
    for logger in (NATIVE_LOG, fetcher.LOG, reach.LOG):
        monkeypatch.setattr(logger, "filters", [LogThrottle()])


@pytest.fixture
def coordinator() -> Coordinator:
    """The membership of the consumer under test."""
    return Coordinator()


@pytest.fixture
def open_consumer(broker: Broker, coordinator: Coordinator) -> Iterator[Callable[..., KafkaConsumer]]:
    """Open consumers of group `g`. They are closed after the test, and no thread is left."""
    before = set(threading.enumerate())
    opened: list[KafkaConsumer] = []

    def build(**settings: Any) -> KafkaConsumer:
        consumer = KafkaConsumer(
            "zk:2181", broker.bootstrap_servers, "g", ["clicks"], membership=coordinator, **settings
        )
        opened.append(consumer)
        consumer.start()
        return consumer

    yield build
    coordinator.gate.set()
    for consumer in opened:
        consumer.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "threads end")
