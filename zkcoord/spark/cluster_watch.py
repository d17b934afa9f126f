"""Looks before each commit whether Kafka is still the cluster that the batch was planned for.

A name of a broker may lead to another cluster now. Its log has other records at these offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.outlog import ASK_TIMEOUT_MS
from zkcoord.spark.ports import LogEnds
from zkcoord.spark.ranges import OffsetRange

ANEW_MS = 5_000
"""Between two looks through new connections. (Spark's connector makes some for each batch.)"""

LOOK_MS = 2_000
"""Of one such look, by which a commit takes longer at most where brokers are away."""

NAMED_MAX = 10  # partitions that an error spells out


class ClusterWatch:
    """Of one run. For the batch thread."""

    def __init__(self, log_ends: LogEnds, *, anew: bool, now_ms: Callable[[], int] = mono_ms) -> None:
        """`anew`: the reader cannot tell from which cluster it reads. Its tasks connect by themselves, perhaps to
        brokers that this program's own connections do not lead to: those are looked at now and then."""
        self._log_ends, self._anew, self._now_ms = log_ends, anew, now_ms
        self._looked_ms: int | None = None
        self._since: dict[TopicPartition, int] = {}  # the first offset that was read since the last good look

    def confirm(self, ranges: Iterable[OffsetRange]) -> None:
        """Return if these, which were read, may be committed: as a rule at once. UnavailableError while nobody tells;
        UsageError if the cluster is another one now."""
        mine = {each.topic_partition: each.start for each in ranges}
        topic = min(mine).topic
        self._log_ends.confirm(topic, ASK_TIMEOUT_MS)
        if not self._anew:
            return
        self._since = {**mine, **self._since}
        if self._looked_ms is not None and self._now_ms() < self._looked_ms + ANEW_MS:
            return
        try:
            self._log_ends.look_anew(topic, LOOK_MS)
        except UnavailableError:  # who cannot connect anew reads nothing else either
            pass
        except UsageError as error:
            raise UsageError(f"{error}{self._told(mine)}") from error
        else:
            self._since = {}
        self._looked_ms = self._now_ms()

    def _told(self, mine: dict[TopicPartition, int]) -> str:
        """Name the offsets from which batches are committed that may have read the other cluster."""
        committed = {each: at for each, at in self._since.items() if mine.get(each) != at}
        if not committed:
            return ""
        named = ", ".join(f"{each} from {at}" for each, at in sorted(committed.items())[:NAMED_MAX])
        more = ", …" if len(committed) > NAMED_MAX else ""
        return (
            f". What was read there since the last look may be committed already: {named}{more}; reset the group there"
        )
