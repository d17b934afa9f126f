"""A central coordinator for Kafka consumers that find their partitions through ZooKeeper. Public names only."""

from zkcoord.consumer import Consumer
from zkcoord.coordinator import Coordinator
from zkcoord.core.model import TopicPartition
from zkcoord.errors import (
    ConsumerRebalanceFailed,
    CorruptError,
    FencedError,
    InvariantError,
    SchemaError,
    UnavailableError,
    UsageError,
    ZkcoordError,
)

__all__ = [
    "Consumer",
    "ConsumerRebalanceFailed",
    "Coordinator",
    "CorruptError",
    "FencedError",
    "InvariantError",
    "SchemaError",
    "TopicPartition",
    "UnavailableError",
    "UsageError",
    "ZkcoordError",
]
