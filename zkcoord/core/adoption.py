"""What an operator told about the old members of an adopted group, since the tree does not show it.

A group of old consumers (layout `legacy`) is served only once it is adopted. `zkcoord group adopt` writes this value
into the group's record. `tree.adoption` is its codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zkcoord.core.offset_store import DUAL, KAFKA, ZOOKEEPER, OffsetStore, offset_store

OLD_STORES = (ZOOKEEPER, KAFKA)
"""Values of the old consumer's `offsets.storage`."""

OLD_STRATEGIES = ("range", "roundrobin")
"""Values of the old consumer's `partition.assignment.strategy`."""

OLD_RETRIES, OLD_BACKOFF_MS, OLD_AUTO_COMMIT_MS = 4, 2_000, 60_000
"""The old consumers' defaults of `rebalance.max.retries`, `rebalance.backoff.ms` (ms) and `auto.commit.interval.ms`
(ms). They are part of the record's format."""

OLD_SESSION_MS = 30_000
"""ms: an old member's session timeout. It is a guess, since no node shows the real one: five times the old consumers'
default. It serves to estimate when an old member stops committing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The configuration of a group's old members, and the version of its brokers.

    `kafka` is the version of their library: a line (`0.11`) or an exact version (`0.10.1.1`). `broker` is None if it
    was not told.
    """

    offsets: str  # one of OLD_STORES
    strategy: str  # one of OLD_STRATEGIES
    kafka: str
    dual_commit: bool = False  # True if they commit to both stores; only if `offsets` is kafka
    retries: int = OLD_RETRIES
    backoff_ms: int = OLD_BACKOFF_MS
    auto_commit_interval_ms: int = OLD_AUTO_COMMIT_MS
    exclude_internal: bool = True
    broker: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)  # keys that this version does not know, kept

    @property
    def store_name(self) -> str:
        """The offset store that zkcoord's consumers share with these old members.

        >>> Adoption(offsets="kafka", dual_commit=True, strategy="range", kafka="0.11").store_name
        'dual'
        """
        return DUAL if self.dual_commit else self.offsets

    @property
    def store(self) -> OffsetStore:
        """That store."""
        return offset_store(self.store_name)

    @property
    def late_ms(self) -> int:
        """ms for which an old member may still commit a partition that it had.

        >>> Adoption(offsets="zookeeper", strategy="range", kafka="1.1").late_ms
        90000
        """
        return self.auto_commit_interval_ms + OLD_SESSION_MS

    @property
    def patience_ms(self) -> int:
        """ms between the first and the last attempt of a joining old member to claim a partition.

        >>> Adoption(offsets="zookeeper", strategy="range", kafka="1.1").patience_ms
        6000
        """
        return (self.retries - 1) * self.backoff_ms
