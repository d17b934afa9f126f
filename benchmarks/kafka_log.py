"""A topic with records in it, for the benchmarks that read Kafka."""

from __future__ import annotations

import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "bench"
RECORD_BYTES = 100


def create_topic(bootstrap_servers: str, partitions: int) -> None:
    """Make TOPIC, empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(60)


def fill(bootstrap_servers: str, partitions: int, rows: int, record_bytes: int = RECORD_BYTES) -> None:
    """Make TOPIC, and write the same record into it `rows` times, evenly over the partitions."""
    create_topic(bootstrap_servers, partitions)
    record = os.urandom(record_bytes // 2).hex().encode()
    settings = {"queue.buffering.max.messages": 500_000, "linger.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
    for number in range(rows):
        while True:
            try:
                producer.produce(TOPIC, record, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
