"""Compares the cluster that the brokers report with the cluster whose topics are in the tree."""

from __future__ import annotations

from zkcoord.errors import UsageError


def two_clusters(told: str | None, named: str | None, servers: str) -> UsageError | None:
    """Return the error when the brokers at `servers` report another cluster (`told`) than the tree names (`named`).

    None or "": that side names no cluster, and there is no error. Brokers before 0.10.1 report none.

    >>> two_clusters("a", "a", "k1:9092") is two_clusters(None, "a", "k1:9092") is None
    True
    """
    if not told or not named or told == named:
        return None
    return UsageError(
        f"the brokers at {servers} are of the cluster {told!r}, the tree's topics of {named!r}: correct "
        "the bootstrap servers (--bootstrap-servers), or ZooKeeper's address and chroot"
    )
