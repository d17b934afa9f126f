"""What a member knows of the others of its group, where these may be old consumers. `member.neighbourhood` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.core.mode import COORDINATED, GroupMode, Mode
from zkcoord.core.model import TopicPartition

EARLY_MS = 1_000
"""An old member that joins makes its last attempt when its patience is over: what is its own is free so long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The group's mode, and a member's own share of the plan of a mixed group."""

    mode: GroupMode = COORDINATED
    share: Mapping[TopicPartition, str] | None = None  # the plan's partitions of this member, with its threads
    since_ms: int = 0  # when the change was seen that made the plan
    free: frozenset[TopicPartition] = frozenset()  # of the share: nobody has claimed them
    incarnations: Mapping[str, int] = field(default_factory=dict)  # topic -> the number in its mark
    record_version: int = 0  # of the record that has the adoption
    late_ms: int = 0  # so long after a claim an earlier owner may still commit

    @property
    def planned(self) -> bool:
        """True while the member follows a plan."""
        return self.mode.mode is Mode.MIXED and self.share is not None

    @property
    def obstacle(self) -> str | None:
        """Why no consumer of ours registers here now; None: it may."""
        if self.mode.coordinated or self.planned:
            return None
        return f"its old consumers cannot share the group with others now: {self.mode.why}"

    @property
    def stopped_by_ms(self) -> int:
        """When what the plan gives to others must be free, whatever the application is at."""
        patience_ms = self.mode.patience_ms
        return self.since_ms + max(patience_ms - EARLY_MS, patience_ms // 2)


ALONE = Neighbours()
