"""Round robin as the old high-level consumer of Kafka 0.8.2 to 0.11 computes it: a partition's name is `[topic,0]`.

0.8.2 to 0.10.1 refuse to rebalance unless all members subscribe to the same topics with the same numbers of threads.
This module always answers as later versions do.
"""

from __future__ import annotations

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.legacy.round_robin import deal
from zkcoord.core.model import TopicPartition


def assign_roundrobin_0_8(given: AssignorInput) -> dict[TopicPartition, str]:
    """Deal partitions in the order of `"[topic,partition]".hashCode`. Present owners change nothing."""
    return deal(given, "[", ",]")
