"""Computes how far a group is behind: offsets against log ends. An unknown value is None (`-` in the tools)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkcoord.core.model import TopicPartition
from zkcoord.kafka.client import KafkaClient


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The ends of logs, and for each other requested partition why its end is unknown."""

    ends: Mapping[TopicPartition, int]
    unknown: Mapping[TopicPartition, str]


def lag(
    offsets: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """Return the number of messages between each offset and its log's end, in order of the partitions. None: one of the
    two is unknown.

    A lag is negative when the offset is beyond the log's end (the topic was created again, or a tree was restored).
    kafka-consumer-groups shows it likewise.

    >>> lag({TopicPartition("t", 0): 7, TopicPartition("t", 1): None}, {TopicPartition("t", 0): 9})
    {TopicPartition(topic='t', partition=0): 2, TopicPartition(topic='t', partition=1): None}
    """
    found: dict[TopicPartition, int | None] = {}
    for partition, offset in sorted(offsets.items(), key=lambda item: item[0]):
        end = ends.get(partition)
        found[partition] = None if offset is None or end is None else end - offset
    return found


def log_ends(
    client: KafkaClient,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int,
) -> LogEnds:
    """Return the log's end of each partition that answers within `timeout_ms`. It raises nothing for the others.

    Uncommitted transactions count, as in kafka-consumer-groups. There is one request to each leader.
    """
    found, failed = client.ask_offsets(partitions, "latest", "read_uncommitted", timeout_ms)
    return LogEnds(ends=found, unknown={partition: str(error) for partition, error in failed.items()})
