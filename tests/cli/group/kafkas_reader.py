"""A program on a consumer of Kafka's own protocol: prints `partition offset` of each record, commits every third one,
and what it has read before partitions are taken from it.

    python kafkas_reader.py SERVERS GROUP TOPIC PROTOCOL

It ends at SIGTERM, and commits what it has read.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

COMMITTED_EVERY = 3
SESSION_MS = "6000"
GROUP_HAS_CHANGED = {
    KafkaError.STALE_MEMBER_EPOCH,  # KIP-848: the answer that tells this member the group's new epoch is under way
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,  # the broker has not heard of it for a session timeout
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
}


def committed(consumer: Consumer, **what: Any) -> bool:
    """Commit, and wait for the answer.

    False if the broker refused the commit because the group has changed. librdkafka does not repeat it by itself. The
    program must poll, and may then commit the partitions that it has not lost.
    """
    try:
        consumer.commit(asynchronous=False, **what)
    except KafkaException as error:
        if error.args[0].code() not in GROUP_HAS_CHANGED:
            raise
        return False
    return True


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
        if uncommitted and committed(consumer):
            uncommitted.clear()

    def give_back(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit()
        uncommitted.clear()  # another consumer has these records already

    consumer.subscribe([topic], on_revoke=give_back)
    while not leaving or uncommitted:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            print(message.partition(), message.offset(), flush=True)
            uncommitted.append(message.offset())
        if leaving or len(uncommitted) >= COMMITTED_EVERY:
            commit()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
