"""Which partitions old members had, and until when they may still commit them. They commit without a fence.

The plan that all members follow shows what an old member has. A member cannot know what was before its first look. So
every partition that it holds in the beginning may have been an old member's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.core.mode import GroupMode
from zkcoord.core.model import TopicPartition, consumer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerOwners:
    """Times are ms of the member's own clock."""

    owned: frozenset[TopicPartition] = frozenset()  # partitions of old members, by the last plan
    until_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    # partition that an old member had -> until when that member may commit it
    unknown_until_ms: int = 0  # until when any partition may have been an old member's before the first look

    def after(self, mode: GroupMode, seen_ms: int, late_ms: int) -> FormerOwners:
        """Return a copy with the group's mode as it was seen at `seen_ms`. `late_ms`: how long an old member may still
        commit a partition that it had.

        >>> p = TopicPartition("t", 0)
        >>> former = FormerOwners(owned=frozenset({p})).after(GroupMode(), 5_000, 90_000)
        >>> former.may_commit(p, 94_999), former.may_commit(p, 95_000)
        (True, False)
        """
        if mode.plan is None and not mode.coordinated:  # nobody knows what they have now
            return self
        plan = mode.plan or {}
        owned = frozenset(p for p, thread in plan.items() if consumer_of(thread) in mode.old)
        until_ms = {p: at_ms for p, at_ms in self.until_ms.items() if at_ms > seen_ms and p not in owned}
        left = dict.fromkeys(self.owned - owned, seen_ms + late_ms)
        return FormerOwners(owned=owned, until_ms=until_ms | left, unknown_until_ms=self.unknown_until_ms)

    def may_commit(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while an old member that had the partition, or will have it next, may commit it."""
        return partition in self.owned or now_ms < max(self.until_ms.get(partition, 0), self.unknown_until_ms)
