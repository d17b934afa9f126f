"""Where a partition without an offset starts: `latest`, `earliest`, or a time, for all topics or for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Literal

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.ports import LogEnds, Where

Start = Literal["latest", "earliest"] | datetime
StartingOffsets = Start | Mapping[str, Start]
OutOfRange = Literal["earliest", "latest", "fail"]
REST = "*"  # in a mapping: all topics that it does not name
DEFAULT: Where = "latest"  # as for Kafka's own consumers


class StartingPoints:
    """Resolves the reset policy. Raises UsageError for a value that is no policy.

    >>> points = StartingPoints({"clicks": "earliest", "*": datetime.fromisoformat("2026-01-01T00:00Z")})
    >>> points.of("clicks"), points.of("views")
    ('earliest', 1767225600000)
    """

    def __init__(self, given: StartingOffsets) -> None:
        self._by_topic: dict[str, Where] = {}
        if isinstance(given, Mapping):
            self._by_topic = {topic: _where(start) for topic, start in given.items()}
            self._rest = self._by_topic.pop(REST, DEFAULT)
        else:
            self._rest = _where(given)

    def check(self, topics: Collection[str]) -> None:
        """Raises UsageError if a policy names a topic that is not in `topics`. Without topics, any may come."""
        strange = sorted(self._by_topic.keys() - set(topics)) if topics else []
        if strange:
            raise UsageError(
                f"starting_offsets names the topic {strange[0]!r}, which is not read: {', '.join(sorted(topics))} "
                f"({REST!r} stands for the rest)"
            )

    def of(self, topic: str) -> Where:
        """Return the policy for a topic. A time is in ms since 1970."""
        return self._by_topic.get(topic, self._rest)

    def said(self, topic: str) -> str:
        """Describe the policy for a topic to a person."""
        where = self.of(topic)
        return where if isinstance(where, str) else f"the first record since {where} ms"

    def positions(self, log_ends: LogEnds, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask where these partitions start now, with one request for each policy. Raises the errors of Kafka's
        client."""
        asked: dict[Where, list[TopicPartition]] = {}
        for each in sorted(partitions):
            asked.setdefault(self.of(each.topic), []).append(each)
        found: dict[TopicPartition, int] = {}
        for where, named in asked.items():
            found.update(log_ends.reset_positions(named, where))
        return found


def _where(start: object) -> Where:
    if start == "latest":
        return "latest"
    if start == "earliest":
        return "earliest"
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UsageError(f"starting_offsets has the time {start} without a zone: say datetime(..., tzinfo=UTC)")
        return int(start.timestamp() * 1000)
    raise UsageError(
        f"starting_offsets is {start!r}; it must be 'latest', 'earliest', a datetime with a zone, or a mapping of "
        f"topics (and {REST!r} for the rest) to these"
    )
