"""A program on a consumer of Kafka's own protocol: prints `partition offset` of each record, commits every third one,
and what it has read before partitions are taken from it.

    python kafkas_reader.py SERVERS GROUP TOPIC PROTOCOL

It ends at SIGTERM, and commits what it has read.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

COMMITTED_EVERY = 3
SESSION_MS = "6000"


def main(servers: str, group: str, topic: str, protocol: str) -> None:
    """Read until told to end."""
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: leaving.append(number))
    settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
    settings |= {"enable.auto.commit": "false", "auto.offset.reset": "error"}
    if protocol == "classic":
        settings["session.timeout.ms"] = SESSION_MS
    consumer = Consumer(settings)
    uncommitted: list[int] = []

    def commit() -> None:
        if uncommitted:
            consumer.commit(asynchronous=False)
            uncommitted.clear()

    def give_back(_: Consumer, partitions: list[TopicPartition]) -> None:
        with suppress(KafkaException):  # they are somebody else's already
            commit()
        uncommitted.clear()

    consumer.subscribe([topic], on_revoke=give_back)
    while not leaving:
        message = consumer.poll(0.1)
        if message is None:
            continue
        assert message.error() is None, message.error()
        print(message.partition(), message.offset(), flush=True)
        uncommitted.append(message.offset())
        if len(uncommitted) >= COMMITTED_EVERY:
            commit()
    commit()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
