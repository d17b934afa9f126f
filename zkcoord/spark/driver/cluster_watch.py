"""Checks before each commit whether Kafka is still the cluster for which the batch was planned.

A broker's name may lead to another cluster now, whose log has other records at these offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.driver.outlog import ASK_TIMEOUT_MS
from zkcoord.spark.ports import LogEnds
from zkcoord.spark.ranges import OffsetRange

LOOK_MS = 2_000
"""ms that one such check may take. A commit takes at most this much longer when brokers are down."""

NAMED_MAX = 10  # number of partitions that an error names


class ClusterWatch:
    """The check for one run. For the batch thread."""

    def __init__(self, log_ends: LogEnds, anew_ms: int | None, now_ms: Callable[[], int] = mono_ms) -> None:
        """`anew_ms`: the reader cannot tell from which cluster it reads. Its tasks make connections of their own,
        perhaps to brokers to which this program's connections do not lead: those are checked every so many ms."""
        self._log_ends, self._anew_ms, self._now_ms = log_ends, anew_ms, now_ms
        self._looked_ms: int | None = None
        self._since: dict[TopicPartition, int] = {}  # the first offset that was read since the last successful check

    def confirm(self, ranges: Iterable[OffsetRange]) -> None:
        """Return if these ranges, which were read, may be committed; that is usual at once. Raises UnavailableError
        while no broker answers, and UsageError if the cluster has changed."""
        mine = {each.topic_partition: each.start for each in ranges}
        topic = min(mine).topic
        self._log_ends.confirm(topic, ASK_TIMEOUT_MS)
        if self._anew_ms is None:
            return
        self._since = {**mine, **self._since}
        if self._looked_ms is not None and self._now_ms() < self._looked_ms + self._anew_ms:
            return
        try:
            self._log_ends.look_anew(topic, LOOK_MS)
        except UnavailableError:  # a reader that cannot connect reads nothing, either
            pass
        except UsageError as error:
            raise UsageError(f"{error}{self._told(mine)}") from error
        else:
            self._since = {}
        self._looked_ms = self._now_ms()

    def _told(self, mine: dict[TopicPartition, int]) -> str:
        """Name the offsets from which on committed batches may have read the other cluster."""
        committed = {each: at for each, at in self._since.items() if mine.get(each) != at}
        if not committed:
            return ""
        named = ", ".join(f"{each} from {at}" for each, at in sorted(committed.items())[:NAMED_MAX])
        more = ", …" if len(committed) > NAMED_MAX else ""
        return (
            f". What was read there since the last look may be committed already: {named}{more}; reset the group there"
        )
