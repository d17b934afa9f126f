"""What a member knows of Kafka's side of its offsets, in the stores `dual` and `kafka`: values. See `mirroring`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition

RETRY_MS, RETRY_MS_MAX = 1_000, 60_000
"""What Kafka did not take is tried again after this, doubling."""


class Target(NamedTuple):
    """What Kafka should have of a partition: an offset, and the tenure (the node's mzxid)."""

    offset: int
    mzxid: int


class Acked(NamedTuple):
    """What Kafka acknowledged. `since_ms`: when the checkpoint was made from which the next one is counted."""

    offset: int
    mzxid: int
    since_ms: int


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A commit to Kafka that is under way; one at a time. Before it what stands there may be read."""

    targets: Mapping[TopicPartition, Target]
    since_ms: int
    asked_ms: int  # when the present call was made
    sent: bool = False  # False: what stands there is being read
    adopted: Mapping[TopicPartition, int] = field(default_factory=dict)  # of these a stranger's commit is committed, in
    # place of this own offset: so it is followed only if Kafka takes commits, and once


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """What Kafka has, as far as it is known."""

    acked: Mapping[TopicPartition, Acked] = field(default_factory=dict)
    exchange: Exchange | None = None
    failing: frozenset[TopicPartition] = frozenset()  # Kafka did not take their last commit
    away: bool = False  # it took nothing of the last commit, and not because it does not know the partitions
    tries: int = 0  # commits of these that failed, one after the other
    retry_ms: int = 0  # the next one comes then
    doubtful: Mapping[TopicPartition, int] = field(default_factory=dict)  # tenures that must end, in the store `kafka`:
    # a commit in them may land late, or the offset is not what Kafka has
    unfollowed: Mapping[TopicPartition, int] = field(default_factory=dict)  # strangers' offsets: the commits in their
    # place had no answer, so they are looked for, also under the own stamp, until one is taken
    due_ms: int | None = None  # no checkpoint is due before
    watched: frozenset[TopicPartition] = frozenset()  # nodes: in the store `kafka` no commit would notice a stranger's
    followed: tuple[int, str] = (0, "")  # `Memory.turns` and the store by which these were last chosen
    level: tuple[object, object] = (None, None)  # what was held and acknowledged when they were last found equal

    def without(self, partitions: Collection[TopicPartition]) -> Mirror:
        """With nothing of these partitions, which are not held any more."""
        known = self.acked.keys() | self.failing | self.watched
        if known.isdisjoint(partitions):
            return self
        return fast_replace(
            self,
            acked={p: acked for p, acked in self.acked.items() if p not in partitions},
            doubtful={p: mzxid for p, mzxid in self.doubtful.items() if p not in partitions},
            failing=self.failing.difference(partitions),
            unfollowed={p: offset for p, offset in self.unfollowed.items() if p not in partitions},
            watched=self.watched.difference(partitions),
        )

    def doubts(self, partition: TopicPartition, mzxid: int) -> bool:
        """True while this tenure of the partition must end."""
        return self.doubtful.get(partition) == mzxid

    def failed(self, partitions: Collection[TopicPartition], now_ms: int) -> Mirror:
        """With these not taken by Kafka; the next try waits for longer each time."""
        wait_ms = min(RETRY_MS << min(self.tries, 20), RETRY_MS_MAX)
        failing = self.failing.union(partitions)
        return fast_replace(self, failing=failing, tries=self.tries + 1, retry_ms=now_ms + wait_ms)


NO_MIRROR = Mirror()
