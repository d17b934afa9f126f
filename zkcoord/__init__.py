"""A central coordinator for Kafka consumers that find their partitions through ZooKeeper. Public names only."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from zkcoord.consumer import Consumer
    from zkcoord.coordinator import Coordinator
else:

    def __getattr__(name: str) -> type:
        """Load a public class, with all modules that it needs, only when it is used: the command line seldom uses
        it."""
        if name == "Consumer":
            from zkcoord.consumer import Consumer

            return Consumer
        if name == "Coordinator":
            from zkcoord.coordinator import Coordinator

            return Coordinator
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
