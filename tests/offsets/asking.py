"""A program of its own that asks a group's coordinator in Kafka, as tools do, until its input ends: `asking.py SERVERS
GROUP TOPIC [TIMEOUT_MS]`. Each time it asks all questions, and prints how many answers it got."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits


def main(servers: str, group: str, _topic: str, timeout_ms: str = "2000") -> None:
    """Ask until the standard input ends."""
    groups, ended = [f"{group}-{number}" for number in range(3)], threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with KafkaClient(servers) as client:
        store = KafkaCommits(client, timeout_ms=int(timeout_ms))
        while not ended.is_set():
            answers = len(store.read(groups).found)
            with suppress(UnavailableError):
                for each in groups:
                    assert store.users(each) == []
                    answers += 1
            print(answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
