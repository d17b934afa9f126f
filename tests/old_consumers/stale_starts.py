"""Where an old member begins: it reads its offsets in the midst of a rebalance, and only then claims its partitions.

Whoever commits and releases in between hands over a partition whose new owner has read the offset before (so in
`ZookeeperConsumerConnector.rebalance` of 0.8 to 1.1: `fetchOffsets`, then `reflectPartitionOwnershipDecision`).
"""

from __future__ import annotations

from collections.abc import Iterable


def stale_start(offset: int, begun_ms: int, started_ms: int, commits: Iterable[tuple[int, int]]) -> range:
    """What an old member reads again since it began at `offset`, though commits had passed it when it started.

    Empty unless that offset stood at a moment of its rebalance. `begun_ms`, `started_ms`: its try to rebalance began,
    its first record was handed out. `commits`: time and offset of the partition's, in their order.

    >>> stale_start(43, 5_000, 5_400, [(4_000, 43), (5_200, 47)])
    range(43, 47)
    >>> stale_start(43, 5_300, 5_400, [(4_000, 43), (5_200, 47)])  # it stood no more when the rebalance began
    range(43, 43)
    """
    known = [each for each in commits if each[0] <= started_ms]
    before = [each for each in known if each[0] <= begun_ms][-1:]
    stood = [each[1] for each in (*before, *(each for each in known if each[0] > begun_ms))]
    return range(offset, stood[-1] if offset in stood[:-1] else offset)
