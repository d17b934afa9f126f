"""What a member knows of the other members of a group that may have old consumers. `member.neighbourhood` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.former_owners import FormerOwners
from zkcoord.core.mode import COORDINATED, GroupMode, Mode
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.offset_store import ZOOKEEPER, offset_store

EARLY_MS = 1_000
"""ms before the end of an old member's patience at which its partitions must be free: a joining old member makes its
last attempt at the end."""


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The group's mode, and a member's own share of the plan of a mixed group."""

    mode: GroupMode = COORDINATED
    share: Mapping[TopicPartition, str] | None = None  # the plan's partitions of this member -> thread
    since_ms: int = 0  # when the group was seen to be mixed
    moved_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    # partition that was in the share -> when the plan was last seen to give it to others
    joined_ms: Mapping[str, int] = field(default_factory=dict)  # when each registration was seen first
    free: frozenset[TopicPartition] = frozenset()  # partitions of the share that nobody has claimed
    incarnations: Mapping[str, int] = field(default_factory=dict)  # topic -> the number in its mark
    record_version: int = 0  # of the record that has the adoption
    store: str = ZOOKEEPER  # the offset store in the record
    old_store: str = ZOOKEEPER  # the offset store of old members, by the adoption
    stores: tuple[str, ...] = (ZOOKEEPER,)  # offset stores that this consumer can use
    former: FormerOwners = field(default_factory=FormerOwners)  # what old members had, and may still commit
    patience_ms: int | None = None  # patience of the old members in the adoption, also while there are none

    @property
    def planned(self) -> bool:
        """True while the member follows a plan."""
        return self.mode.mode is Mode.MIXED and self.share is not None

    @property
    def obstacle(self) -> str | None:
        """Why no zkcoord consumer registers here now. None: it may."""
        if not self._shares_offsets:
            return (
                f"its offsets are kept in the store {self.store!r}, and its old consumers keep theirs in "
                f"{self.old_store!r}: an operator moves the group with `zkcoord offsets migrate`, or stops its old "
                "consumers"
            )
        if self.store not in self.stores:
            return (
                f"its offsets are kept in the store {self.store!r}, and this consumer can use {', '.join(self.stores)} "
                "only: whoever runs it must give it bootstrap servers"
            )
        if self.mode.coordinated or self.planned:
            return None
        return f"its old consumers cannot share the group with others now: {self.mode.why}"

    @property
    def _shares_offsets(self) -> bool:
        """True when zkcoord's consumers and old ones continue where the other left off, or no old ones are there."""
        if self.mode.coordinated or self.store == self.old_store:
            return True
        return not offset_store(self.store).tenured and not self.old_in_kafka

    @property
    def old_in_kafka(self) -> bool:
        """True when old members commit only to Kafka, by the adoption."""
        return not offset_store(self.old_store).node_counts

    @property
    def stop_within_ms(self) -> int | None:
        """ms that an application has to stop partitions that go to an old member. None: there can be no old member."""
        return None if self.patience_ms is None else _given_ms(self.patience_ms)

    def too_hasty(self, stop_needs_ms: int) -> str | None:
        """Why an application that needs so long to stop does not register beside these old members. None: it may."""
        within_ms = self.stop_within_ms
        if not self.planned or within_ms is None or within_ms >= stop_needs_ms:
            return None
        return (
            f"its old consumers wait {self.patience_ms} ms for a partition, of which {within_ms} are left to stop; "
            f"this consumer needs {stop_needs_ms}: whoever runs them raises rebalance.max.retries or "
            "rebalance.backoff.ms, and adopts the group again with these"
        )

    def stopped_by_ms(self, partitions: Iterable[TopicPartition]) -> int | None:
        """When those of the partitions that the plan gives to others must be free, whatever the application is doing.
        None: the plan gives none of them to others."""
        share = self.share or {}
        return min((self._stopped_by_ms(p) for p in partitions if p not in share), default=None)

    def _stopped_by_ms(self, partition: TopicPartition) -> int:
        """Counts from the event that gave the partition to others. If the old member that receives it is still in its
        first attempts, it counts from that member's join instead: a later join of another member gives it no more
        attempts, and its program ends with the last one."""
        given_ms = _given_ms(self.mode.patience_ms)
        moved_ms = self.moved_ms.get(partition, self.since_ms)
        joined_ms = self.joined_ms.get(consumer_of((self.mode.plan or {}).get(partition, "")), moved_ms)
        return (joined_ms if moved_ms < joined_ms + given_ms - EARLY_MS else moved_ms) + given_ms


def _given_ms(patience_ms: int) -> int:
    """ms of the old members' patience that an application has to stop."""
    return max(patience_ms - EARLY_MS, patience_ms // 2)


ALONE = Neighbours()
