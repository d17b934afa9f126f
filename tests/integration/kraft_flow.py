"""A producer that goes on while a cluster moves from ZooKeeper to KRaft and to Kafka 4, step by step."""

from __future__ import annotations

import logging
import threading
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.integration.kraft_state import Recent
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import await_partitions
from tests.waiting import wait_until

PARTITIONS = 4
PAUSE_SECONDS = 0.02  # between two records
DELIVERY_MS = 300_000  # a restart of the only broker must not cost a record


class Flow(threading.Thread):
    """A producer that goes on over restarts; `written`: how many records each partition has got, as it was told.

    A record may be in the log twice. It is not idempotent: librdkafka takes a record for written that a broker refused,
    which did not know the new partition yet, when the broker then takes the next one.

    A broker that has just started in KRaft mode may say that the topic does not exist. librdkafka refuses records then:
    they were not written, and are not missed.
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers, self._topic = servers, topic
        self._stop_now = threading.Event()
        self.written: dict[int, int] = {}
        self.partitions = PARTITIONS
        settings = {
            "acks": "all",
            "delivery.timeout.ms": DELIVERY_MS,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 500,  # without it a topic that was unknown once stays so for minutes
        }
        self.recent = Recent()
        logger = logging.Logger("flow")
        logger.addHandler(self.recent)
        self._producer = Producer({"bootstrap.servers": servers, "debug": "topic", **settings}, logger=logger)
        self.start()

    def run(self) -> None:
        """Write to all partitions in turn, until told to end."""
        number = 0
        while not self._stop_now.wait(PAUSE_SECONDS):
            partition = number % self.partitions
            with suppress(KafkaException):
                self._producer.produce(self._topic, b"x", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written[message.partition()] = self.written.get(message.partition(), 0) + 1

    def grow(self, partitions: int) -> None:
        """Write to so many partitions from now on."""
        await_partitions(self._producer, self._topic, partitions)
        self.partitions = partitions

    def await_more(self) -> None:
        """Wait until each partition that has got records gets some more."""
        goal = {number: count + 1 for number, count in list(self.written.items())}
        wait_until(lambda: all(self.written[n] >= count for n, count in goal.items()), "records are written again")

    def stop(self) -> None:
        """Tell it to end."""
        self._stop_now.set()

    def end(self) -> dict[int, int]:
        """End it. Return how many records each partition has: all that it was told of, at least."""
        self.stop()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        ends = {n: self._end_of(n) for n in sorted(self.written)}
        assert all(ends[n] >= count > 0 for n, count in self.written.items()), (ends, self.written)
        return ends

    def _end_of(self, number: int) -> int:
        with closing(Consumer({"bootstrap.servers": self._servers, "group.id": "ends"}, logger=QUIET)) as consumer:
            first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, number), PATIENCE_SECONDS)
        assert first == 0
        return int(end)
