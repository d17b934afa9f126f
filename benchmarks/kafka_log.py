"""A topic with records in it, for the benchmarks that read Kafka."""

from __future__ import annotations

import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "bench"
RECORD = os.urandom(50).hex().encode()  # 100 bytes


def fill(bootstrap_servers: str, partitions: int, rows: int) -> None:
    """Make TOPIC and put `rows` times RECORD into it, evenly."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(60)
    settings = {"queue.buffering.max.messages": 500_000, "linger.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
    for number in range(rows):
        while True:
            try:
                producer.produce(TOPIC, RECORD, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
