"""A program of its own that commits to Kafka, one offset after the other, until its input ends: `committing.py SERVERS
GROUP TOPIC`. It prints each offset that Kafka has accepted, and returns when it is asked."""

from __future__ import annotations

import sys
import threading
import time

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import UnavailableError
from zkcoord.offsets.group_commits import kafka_commits

PATIENCE_MS = 4_000


def main(servers: str, group: str, topic: str) -> None:
    """Commit until the standard input ends."""
    commits = kafka_commits(group, servers, None, patience_ms=PATIENCE_MS, wall_ms=lambda: time.time_ns() // 1_000_000)
    ended, partition = threading.Event(), TopicPartition(topic, 0)
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    offset = 0
    while not ended.is_set():
        offset += 1
        outcome = commits.commit({partition: KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure("", 7)))})
        assert not outcome.refused, outcome
        try:
            told = commits.read((partition,)).get(partition)
        except UnavailableError:
            continue
        if outcome.done:
            assert told is not None and told.offset <= offset, (told, offset)  # an earlier commit may arrive late
            print(offset, flush=True)
    commits.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
