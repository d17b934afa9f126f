"""The producer's program: writes records with a key and a sequence number to every partition in turn, at a rate.

First one record to each partition, so that consumers have something to warm up with; then it may wait for a file.
It ends at SIGTERM, and says how many records each partition has got.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

from zkcoord import logs
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import NATIVE_LOG, librdkafka
from zkcoord.signals import stopping

TICK_MS = 10  # records are made in small lots
FLUSH_S = 30
USERS = 1_000
SETTINGS = {"enable.idempotence": True, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}


class Source:
    """Makes the records in order: record n goes to partition n modulo `partitions`."""

    def __init__(self, producer: Any, topic: str, partitions: int) -> None:
        self._producer, self._topic, self._partitions = producer, topic, partitions
        self.made = 0
        self.failed: str | None = None

    def write(self, goal: int) -> None:
        """Make records until `goal` of them have been made."""
        while self.made < goal:
            number, partition = divmod(self.made, self._partitions)
            value = json.dumps({"seq": number, "page": f"/item/{number % 977}"})
            key = f"user-{self.made % USERS}"
            try:
                self._producer.produce(
                    self._topic, value.encode(), key.encode(), partition=partition, on_delivery=self._delivered
                )
            except BufferError:  # the queue for the broker is full: let the broker take some records
                self._producer.poll(TICK_MS / 1000)
                continue
            self.made += 1

    def counts(self) -> dict[int, int]:
        """Return how many records this program has written to each partition."""
        return {p: len(range(p, self.made, self._partitions)) for p in range(self._partitions)}

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed = str(error)


def produce(source: Source, producer: Any, rate: int, asked: threading.Event) -> int:
    """Write `rate` records a second until asked to end; return the milliseconds that this took."""
    began_ns, already = time.monotonic_ns(), source.made
    while not asked.wait(TICK_MS / 1000) and source.failed is None:
        spent_ns = time.monotonic_ns() - began_ns
        source.write(already + rate * spent_ns // 1_000_000_000)
        producer.poll(0)
    return (time.monotonic_ns() - began_ns) // 1_000_000


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--go", type=Path, help="a file to wait for before more than the first records are written")
    chosen = parser.parse_args()
    logs.configure("json", logging.INFO)
    producer = librdkafka().Producer({**SETTINGS, "bootstrap.servers": chosen.bootstrap_servers}, logger=NATIVE_LOG)
    source = Source(producer, chosen.topic, chosen.partitions)
    with stopping() as asked:
        source.write(chosen.partitions)
        producer.flush(FLUSH_S)
        logs.emit("ready")
        while chosen.go and not chosen.go.exists() and not asked.wait(TICK_MS / 1000):
            pass
        spent_ms = produce(source, producer, chosen.rate, asked)
    left = producer.flush(FLUSH_S)
    if left or source.failed:
        raise UnavailableError(f"{left} records were not delivered: {source.failed or 'the broker does not answer'}")
    logs.emit("produced", records=source.counts(), spent_ms=spent_ms)


if __name__ == "__main__":
    main()
