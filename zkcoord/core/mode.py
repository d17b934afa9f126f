"""How a group of the layout `legacy` is served, which depends on its old members. `legacy.modes` computes it.

coordinated   all members are zkcoord's: the coordinator starts and stops partitions
mixed         there are old members: each zkcoord member follows the plan that they compute
observe       zkcoord cannot share this group with its old members: nothing new is begun
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from zkcoord.core.model import TopicPartition, consumer_of


class Mode(Enum):
    """The three modes of a group. The value is the name that people see."""

    COORDINATED = "coordinated"
    MIXED = "mixed"
    OBSERVE = "observe"


@dataclass(frozen=True, kw_only=True)
class GroupMode:
    """A group's mode, with its reason. The plan is the assignment that the old members compute.

    `plan` None: there is none now. Then nobody claims or releases anything, also in a mixed group. Such a group waits
    for a registration that may be readable soon (until `grace_ends_ms`, monotonic).
    """

    mode: Mode = Mode.COORDINATED
    why: str = ""
    old: frozenset[str] = frozenset()  # registrations that are not zkcoord's, including unreadable ones
    plan: Mapping[TopicPartition, str] | None = None
    patience_ms: int = 0  # ms for which a joining old member tries to claim its partitions
    grace_ends_ms: int | None = None

    @property
    def coordinated(self) -> bool:
        """True when the coordinator may start and stop partitions."""
        return self.mode is Mode.COORDINATED

    @property
    def settled(self) -> bool:
        """True when it is known which partitions old members have. While they are observed, or a registration may be
        readable soon, nobody knows."""
        return self.coordinated or self.plan is not None

    def share_of(self, consumer_id: str) -> dict[TopicPartition, str] | None:
        """The partitions that the plan gives to a consumer, each with its thread. None: there is no plan.

        >>> mode = GroupMode(mode=Mode.MIXED, plan={TopicPartition("t", 0): "g_a-0", TopicPartition("t", 1): "g_b-0"})
        >>> mode.share_of("g_a")
        {TopicPartition(topic='t', partition=0): 'g_a-0'}
        """
        if self.plan is None:
            return None
        return {partition: thread for partition, thread in self.plan.items() if consumer_of(thread) == consumer_id}


COORDINATED = GroupMode()
