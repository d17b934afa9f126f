"""Asks Kafka where logs begin and end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import some
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs

PARTITIONS = "\0"  # stands for the partitions in the text of a reason


def known_logs(client: KafkaClient, tell: Callable[[str], None] | None = None, timeout_ms: int | None = None) -> Logs:
    """Return a function that asks Kafka for logs. `tell` is called with the reasons for those that Kafka does not
    tell."""

    def ask(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
        starts, _ = client.ask_offsets(partitions, "earliest", "read_uncommitted", timeout_ms)
        ends, failed = client.ask_offsets(partitions, "latest", "read_uncommitted", timeout_ms)
        if tell is not None:
            reasons: dict[str, list[TopicPartition]] = {}
            for p, error in sorted(failed.items()):
                reasons.setdefault(str(error).replace(str(p), PARTITIONS), []).append(p)
            for reason, partitions in sorted(reasons.items()):
                named = reason.replace(PARTITIONS, some(partitions))
                tell(f"{named}; whether offsets lie within such logs is not known")
        return {p: Log(starts[p], end) for p, end in ends.items() if p in starts}

    return ask
