"""What a member knows about its offsets in Kafka, in the stores `dual` and `kafka`: values only. See `mirroring`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition

RETRY_MS, RETRY_MS_MAX = 1_000, 60_000
"""ms before a failed commit to Kafka is tried again. The wait doubles with each failure, up to the second value."""


class Target(NamedTuple):
    """What Kafka should have for a partition: an offset, and the tenure (the node's mzxid)."""

    offset: int
    mzxid: int


class Acked(NamedTuple):
    """What Kafka acknowledged. `since_ms` is when the last checkpoint was made; the next one counts from then."""

    offset: int
    mzxid: int
    since_ms: int


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A commit to Kafka that is under way. There is one at a time. Before it is sent, the present commits may be
    read."""

    targets: Mapping[TopicPartition, Target]
    since_ms: int
    asked_ms: int  # when the present call was made
    sent: bool = False  # False: the present commits are being read
    adopted: Mapping[TopicPartition, int] = field(default_factory=dict)
    # partition -> own offset. In these a stranger's commit is committed again, in place of the own offset; so it is
    # followed only if Kafka takes commits, and only once


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """What Kafka has, as far as the member knows."""

    acked: Mapping[TopicPartition, Acked] = field(default_factory=dict)
    exchange: Exchange | None = None
    failing: frozenset[TopicPartition] = frozenset()  # Kafka did not take the last commit of these
    away: bool = False  # True if Kafka took nothing of the last commit, for another reason than unknown partitions
    tries: int = 0  # number of failed commits in a row
    retry_ms: int = 0  # when the next try comes
    doubtful: Mapping[TopicPartition, int] = field(default_factory=dict)
    # tenures that must end, in the store `kafka`: a commit in them may land late, or the offset is not the one in Kafka
    unfollowed: Mapping[TopicPartition, int] = field(default_factory=dict)
    # strangers' offsets. The commits in their place had no answer, so they are looked for, also under the own stamp,
    # until one is taken
    due_ms: int | None = None  # no checkpoint is due before this time
    watched: frozenset[TopicPartition] = frozenset()
    # watched nodes: in the store `kafka` no commit would notice that a stranger set one
    followed: tuple[int, str] = (0, "")  # `Memory.turns` and the store when `watched` was last chosen
    level: tuple[object, object] = (None, None)  # `held` and `acked` when Kafka last lacked nothing

    def without(self, partitions: Collection[TopicPartition]) -> Mirror:
        """Return a copy without these partitions, which are not held any more."""
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
        """Return a copy in which Kafka did not take these. The wait for the next try grows each time."""
        wait_ms = min(RETRY_MS << min(self.tries, 20), RETRY_MS_MAX)
        failing = self.failing.union(partitions)
        return fast_replace(self, failing=failing, tries=self.tries + 1, retry_ms=now_ms + wait_ms)


NO_MIRROR = Mirror()
