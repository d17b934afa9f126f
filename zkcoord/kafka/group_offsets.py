"""Offsets that groups keep in Kafka: of many groups, each asked in a request of its own, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.kafka.client import LATE_MS, KafkaClient, librdkafka, translate


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """Group -> its committed offsets (empty: Kafka knows none), and for every other group why they are not known."""

    found: dict[str, dict[TopicPartition, int]]
    unknown: dict[str, ZkcoordError]


def group_offsets(client: KafkaClient, groups: Sequence[str], *, servers: str, timeout_ms: int) -> GroupOffsets:
    """What Kafka at `servers` holds for these groups; raises nothing that concerns one of them."""
    module, admin = librdkafka(), client.admin()
    answer = GroupOffsets(found={}, unknown={})
    futures: dict[str, Any] = {}
    for group in groups:
        asked = [module.ConsumerGroupTopicPartitions(group)]
        futures |= admin.list_consumer_group_offsets(asked, request_timeout=timeout_ms / 1000)
    for group, future in futures.items():
        try:
            partitions = future.result((timeout_ms + LATE_MS) / 1000).topic_partitions
        except module.KafkaException as error:
            answer.unknown[group] = translate(error.args[0], servers, f"tell the offsets of group {group}")
        except TimeoutError:
            answer.unknown[group] = UnavailableError(f"Kafka at {servers} did not tell the offsets of group {group}")
        else:
            answer.found[group] = {TopicPartition(p.topic, p.partition): p.offset for p in partitions if p.offset >= 0}
    return answer
