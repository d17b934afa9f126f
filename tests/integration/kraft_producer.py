"""A producer as a program of its own: it writes to the partitions of a topic in turn.

Arguments: bootstrap servers and topic. Each line of standard input is how many partitions to write to from now on; when
the input ends it ends, and what is on its way is delivered first. Standard output tells after each turn with news how
many records each partition has got, by partition. Standard error is librdkafka's log.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

PAUSE_SECONDS = 0.02  # between two records
DELIVERY_MS = 300_000  # a restart of the only broker must not cost a record
PATIENCE_SECONDS = 120.0
SETTINGS = {
    "acks": "all",
    "delivery.timeout.ms": DELIVERY_MS,
    "linger.ms": 5,
    "topic.metadata.refresh.interval.ms": 500,  # without it a topic that was unknown once stays so for minutes
    "debug": "topic",
}


class Writing:
    """What standard input asks for."""

    def __init__(self) -> None:
        self.partitions, self.ended = 0, threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self.partitions = int(line)
        self.ended.set()


def main(servers: str, topic: str) -> int:
    """Write until the input ends; returns how many records were not delivered then."""
    written: dict[int, int] = {}
    news = threading.Event()

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            written[message.partition()] = written.get(message.partition(), 0) + 1
            news.set()

    def tell() -> None:
        if news.is_set():
            news.clear()
            print(json.dumps(written), flush=True)

    producer, writing, number = Producer({**SETTINGS, "bootstrap.servers": servers}), Writing(), 0
    while not writing.ended.wait(PAUSE_SECONDS):
        if writing.partitions:
            with suppress(KafkaException):
                producer.produce(topic, b"x", partition=number % writing.partitions, on_delivery=delivered)
            number += 1
        producer.poll(0)
        tell()
    left = int(producer.flush(PATIENCE_SECONDS))
    tell()
    return left


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
