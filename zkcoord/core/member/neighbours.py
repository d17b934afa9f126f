"""What a member knows of the others of its group, where these may be old consumers. `member.neighbourhood` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.member.former_owners import FormerOwners
from zkcoord.core.mode import COORDINATED, GroupMode, Mode
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.record import KAFKA, ZOOKEEPER

EARLY_MS = 1_000
"""An old member that joins makes its last attempt when its patience is over: what is its own is free so long before."""


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The group's mode, and a member's own share of the plan of a mixed group."""

    mode: GroupMode = COORDINATED
    share: Mapping[TopicPartition, str] | None = None  # the plan's partitions of this member, with its threads
    since_ms: int = 0  # when the group was seen to be mixed
    moved_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    # when the plan was seen to give a partition of the share to others, for those that it did not give back
    joined_ms: Mapping[str, int] = field(default_factory=dict)  # when each registration was seen first
    free: frozenset[TopicPartition] = frozenset()  # of the share: nobody has claimed them
    incarnations: Mapping[str, int] = field(default_factory=dict)  # topic -> the number in its mark
    record_version: int = 0  # of the record that has the adoption
    store: str = ZOOKEEPER  # where the record says that offsets are kept
    old_store: str = ZOOKEEPER  # where the adoption says that old members keep theirs
    stores: tuple[str, ...] = (ZOOKEEPER,)  # what this consumer can use
    former: FormerOwners = field(default_factory=FormerOwners)  # what old members had, and may still commit
    patience_ms: int | None = None  # of the old members that the adoption tells of, also while none is there

    @property
    def planned(self) -> bool:
        """True while the member follows a plan."""
        return self.mode.mode is Mode.MIXED and self.share is not None

    @property
    def obstacle(self) -> str | None:
        """Why no consumer of ours registers here now; None: it may."""
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
        """True when consumers of ours and old ones go on where the other left off, as far as such are there."""
        if self.mode.coordinated or self.store == self.old_store:
            return True
        return self.store == ZOOKEEPER and not self.old_in_kafka

    @property
    def old_in_kafka(self) -> bool:
        """True when old members commit to Kafka alone, as the adoption says."""
        return self.old_store == KAFKA

    @property
    def stop_within_ms(self) -> int | None:
        """How long an application has to stop what goes to an old member; None: no old member can be there."""
        return None if self.patience_ms is None else _given_ms(self.patience_ms)

    def too_hasty(self, stop_needs_ms: int) -> str | None:
        """Why an application that needs so long to stop does not register beside these old members; None: it may."""
        within_ms = self.stop_within_ms
        if not self.planned or within_ms is None or within_ms >= stop_needs_ms:
            return None
        return (
            f"its old consumers wait {self.patience_ms} ms for a partition, of which {within_ms} are left to stop; "
            f"this consumer needs {stop_needs_ms}: whoever runs them raises rebalance.max.retries or "
            "rebalance.backoff.ms, and adopts the group again with these"
        )

    def stopped_by_ms(self, partitions: Iterable[TopicPartition]) -> int:
        """When those of the partitions that the plan gives to others must be free, whatever the application is at."""
        share = self.share or {}
        return min((self._stopped_by_ms(p) for p in partitions if p not in share), default=self.since_ms)

    def _stopped_by_ms(self, partition: TopicPartition) -> int:
        """From the event on that gave the partition to others; from the join of an old member that receives it, if that
        is still in its first attempts. A join after its own gives it no more of them, and its program ends with the
        last."""
        given_ms = _given_ms(self.mode.patience_ms)
        moved_ms = self.moved_ms.get(partition, self.since_ms)
        joined_ms = self.joined_ms.get(consumer_of((self.mode.plan or {}).get(partition, "")), moved_ms)
        return (joined_ms if moved_ms < joined_ms + given_ms - EARLY_MS else moved_ms) + given_ms


def _given_ms(patience_ms: int) -> int:
    """So much of the old members' patience an application has to stop."""
    return max(patience_ms - EARLY_MS, patience_ms // 2)


ALONE = Neighbours()
