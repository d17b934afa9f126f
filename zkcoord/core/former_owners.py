"""Which partitions old members had, and until when they may still commit them. They commit without a fence.

Both sides note it. A member needs no coordinator for that, but cannot know what was before its first look. The
coordinator's notes outlive both of them: they are in the group's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from zkcoord.core.mode import GroupMode
from zkcoord.core.model import TopicPartition, consumer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerOwners:
    """Times are ms of the own monotonic clock."""

    owned: frozenset[TopicPartition] = frozenset()  # partitions of old members at the last look
    until_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    # partition that an old member had -> until when that member may commit it
    earlier: frozenset[TopicPartition] | None = frozenset()
    # partitions that may have been an old member's before the first look; None: any may have been
    earlier_until_ms: int = 0  # until when they may be committed

    def after(self, mode: GroupMode, seen_ms: int, late_ms: int) -> FormerOwners:
        """Return a copy with the group's mode as it was seen at `seen_ms`. `late_ms`: how long an old member may still
        commit a partition that it had.

        >>> p = TopicPartition("t", 0)
        >>> former = FormerOwners(owned=frozenset({p})).after(GroupMode(), 5_000, 90_000)
        >>> former.may_commit(p, 94_999), former.may_commit(p, 95_000)
        (True, False)
        """
        if not mode.settled:  # nobody knows what they have now
            return self
        return self.owning(planned_for_old(mode), seen_ms, late_ms)

    def owning(self, owned: frozenset[TopicPartition], seen_ms: int, late_ms: int) -> FormerOwners:
        """Return a copy in which old members have exactly these partitions, as it was seen at `seen_ms`."""
        until_ms = {p: at_ms for p, at_ms in self.until_ms.items() if at_ms > seen_ms}
        left = dict.fromkeys(self.owned - owned, seen_ms + late_ms) if late_ms else {}
        return replace(self, owned=owned, until_ms=until_ms | left)

    def may_commit(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while an old member that had the partition, or will have it next, may commit it."""
        if partition in self.owned or now_ms < self.until_ms.get(partition, 0):
            return True
        return now_ms < self.earlier_until_ms and (self.earlier is None or partition in self.earlier)


def planned_for_old(mode: GroupMode) -> frozenset[TopicPartition]:
    """The partitions that the plan gives to old members."""
    plan = mode.plan or {}
    threads = {thread for thread in set(plan.values()) if consumer_of(thread) in mode.old}
    return frozenset([p for p, thread in plan.items() if thread in threads])
