"""Short ways to write nodes of old groups."""

from __future__ import annotations

import json
from collections.abc import Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.legacy.inventory import Cluster, GroupInventory, GroupNodes, take_inventory
from zkcoord.legacy.reading import Taken, matched
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.topic_filter import MATCH_SECONDS

A, B = "g_h1-1416335000123-1a2b3c4d", "g_h2-1416335000123-2b3c4d5e"
MADE_MS, SINCE_MS, WRITTEN_MS = 1_416_000_000_000, 1_416_335_000_123, 1_416_400_000_000


def node(data: bytes | str, mtime_ms: int = SINCE_MS, session: int = 1) -> Node:
    """A node that exists."""
    written = data if isinstance(data, bytes) else data.encode()
    return Node("", Kind.DATA, Stat(0, 1, session, mtime_ms), written)


def static(**threads: int) -> str:
    """A registration for topics."""
    return json.dumps({"version": 1, "subscription": threads, "pattern": "static", "timestamp": "1416335000123"})


def wildcard(regex: str, pattern: str = "white_list") -> str:
    """A registration for a wildcard."""
    return json.dumps({"version": 1, "subscription": {regex: 1}, "pattern": pattern, "timestamp": "1416335000123"})


def group(
    registrations: Mapping[str, str],
    owners: Mapping[str, str] | None = None,
    offsets: Mapping[str, str] | None = None,
    topics: Mapping[str, int] | None = None,
    kafka: Mapping[str, int] | None = None,
    others: tuple[str, ...] = (),
    brokers: int = 1,
    session: int = 1,
    regex_seconds: float = MATCH_SECONDS,
) -> GroupInventory:
    """The inventory of group `g`; owners and offsets by `topic/partition`."""
    return take_inventory(
        GroupNodes(
            group="g",
            folder=node("", MADE_MS),
            registrations={name: node(text, session=session) for name, text in registrations.items()},
            owners=_below(owners or {}, SINCE_MS, session),
            offsets=_below(offsets or {}, WRITTEN_MS, 0),
            others=others,
        ),
        Cluster(
            topics={name: tuple(range(size)) for name, size in (topics or {}).items()},
            brokers=brokers,
            regex_seconds=regex_seconds,
        ),
        None if kafka is None else {partition(name): offset for name, offset in kafka.items()},
    )


def partition(name: str) -> TopicPartition:
    """`t/0` as a partition."""
    topic, _, number = name.partition("/")
    return TopicPartition(topic, int(number))


def _below(nodes: Mapping[str, str], mtime_ms: int, session: int) -> dict[str, dict[str, Node]]:
    found: dict[str, dict[str, Node]] = {}
    for name, text in nodes.items():
        topic, _, child = name.partition("/")
        found.setdefault(topic, {})[child] = node(text, mtime_ms, session)
    return found


def takes(*topics: str) -> Taken:
    """What wildcards take where these topics are."""
    return lambda regex, black_list: matched(regex, topics, black_list=black_list)
