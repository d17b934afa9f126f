"""Round robin as the old high-level consumer of Kafka 1.0 and 1.1 computes it: a partition's name is `topic-0`.

KAFKA-5822 changed the name, and with it nearly every share. So members from before and after that change cannot share a
group.
"""

from __future__ import annotations

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.legacy.round_robin import deal
from zkcoord.core.model import TopicPartition


def assign_roundrobin_1_0(given: AssignorInput) -> dict[TopicPartition, str]:
    """Deal partitions in the order of `"topic-partition".hashCode`. Present owners change nothing."""
    return deal(given, "", "-")
