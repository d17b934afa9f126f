"""Asks Kafka where logs begin and end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs


def known_logs(client: KafkaClient, tell: Callable[[str], None] | None = None, timeout_ms: int | None = None) -> Logs:
    """Return a function that asks Kafka for logs; `tell` is called with the reasons of those that it does not tell."""

    def ask(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
        starts, _ = client.ask_offsets(partitions, "earliest", "read_uncommitted", timeout_ms)
        ends, failed = client.ask_offsets(partitions, "latest", "read_uncommitted", timeout_ms)
        if tell is not None:
            for reason in sorted({str(error).replace(str(p), "…") for p, error in failed.items()}):
                tell(f"{reason}; whether offsets lie within such logs is not known")
        return {p: Log(starts[p], end) for p, end in ends.items() if p in starts}

    return ask
