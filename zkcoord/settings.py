"""The defaults of the public classes and of the command line, each with its reason. Times in milliseconds.

Formats and policies have theirs beside them: what an absent key means is no choice of this program's.
"""

from __future__ import annotations

from importlib import metadata

SESSION_TIMEOUT_MS = 10_000
"""A dead consumer is noticed after this; shorter ones suffer from garbage collections and slow disks of an ensemble."""

REBALANCE_TIMEOUT_MS = 60_000
"""How long a consumer may take to acknowledge, as the old consumers' patience and Kafka's `max.poll.interval.ms`
together have taught: long enough for what was fetched to be finished."""

SPARK_REBALANCE_TIMEOUT_MS = 300_000
"""A Spark batch must be able to end: Kafka's own `max.poll.interval.ms`."""

ASSIGNORS = ("sticky", "range", "roundrobin-1.0", "roundrobin-0.8")
"""What a consumer offers, most wanted first: least movement, then what the old consumers compute. All that every
coordinator has: the coordinator computes, so a group's record can choose any of them without a restart."""

TOOL_TIMEOUT_MS = 15_000
"""How long a command-line tool waits for ZooKeeper before it says that it cannot be reached; less where nobody listens
(`REFUSED_WAIT_MS` in `shell/zk/blocking.py`)."""

DEMO_SECONDS, DEMO_RATE, DEMO_PARTITIONS = 40, 10_000, 8
"""The demo: long enough to see calm between its events, little enough for a small machine beside three Sparks."""


def version() -> str:
    """The installed version of zkcoord."""
    return metadata.version("zkcoord")
