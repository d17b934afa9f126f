"""Plans the ranges of the next batch, as values. Pure: without Spark, Kafka or a clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import some
from zkcoord.errors import UsageError

DESCRIBED_MAX = 8  # number of ranges in a description; a person reads no more in a line of the Spark UI


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to `end` (exclusive). Sorts by topic, partition, start.

    The number of records may be smaller than `end - start` (transactions, compaction).

    `incarnation` distinguishes topics of one name. It starts at 1 or more, and rises when the topic is deleted and
    created again, so that its offsets begin again; 0 is unknown. A sink's keys include it, too. It is the group's own
    count, which ends with the group's deletion.
    """

    topic: str
    partition: int
    start: int
    end: int
    incarnation: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.start}-{self.end}"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Batch:
    """One batch, which `process` gets together with its DataFrame.

    `id` depends only on the ranges: a batch that is read again has the same id. After a consumer's death its ranges may
    be divided among several consumers, with other ids. So a sink without duplicates keys by range, not by `id`. `seq`
    counts this consumer's batches from 0. `generation` is the group's rebalance number when the batch began.
    `replayed`: all its ranges were announced before, by this consumer or an earlier owner, and may have been processed
    completely or in part. `group` is the group's name.
    """

    id: str
    seq: int
    generation: int
    ranges: tuple[OffsetRange, ...]  # sorted, none empty, at most one for a partition
    replayed: bool = False
    group: str = ""  # "" in a checkpoint of an earlier release


def check_batch(batch: object) -> None:
    """Raises UsageError if `batch` is no Batch, for example the number that `foreachBatch` of a query passes."""
    if not isinstance(batch, Batch):
        raise UsageError(
            f"batch is {batch!r}; give what `process` of a SparkConsumer is given, or in foreachBatch "
            "stream_batch(df.sparkSession, checkpoint, number)"
        )


def batch_id(ranges: Iterable[OffsetRange]) -> str:
    """Return 32 hex digits, which are equal for two batches only if their ranges are equal.

    >>> batch_id([OffsetRange("clicks", 0, 100, 600)])
    'fdb21b6444dd641dc50e1e915058950e'
    """
    text = "\n".join(
        f"{each.topic} {each.partition} {each.start} {each.end}" + (f" {each.incarnation}" if is_later(each) else "")
        for each in sorted(ranges)
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_later(each: OffsetRange) -> bool:
    """True for a topic that may have been created again since the group first read it. The first incarnation is named
    without a number, as before ranges had one."""
    return each.incarnation > 1


def same_topic(one: int, other: int) -> bool:
    """False if these are the numbers of two different incarnations of a topic. 0 is unknown, and may be any."""
    return one == other or not one or not other


def plan_ranges(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_offsets: int, turn: int = 0
) -> tuple[OffsetRange, ...]:
    """Return the non-empty ranges to read next, sorted: each from its position, `max_offsets` in all.

    Every partition may have the same share. If a partition has fewer offsets, the others divide the rest of its share.
    So either all are read to their ends, or exactly `max_offsets` are planned. If fewer offsets are allowed than
    partitions have records, `turn` (a rising number) selects the partitions. A partition without a known end, or with
    an end before its position, is left out.

    >>> at = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 5, TopicPartition("t", 2): 9}
    >>> ends = {TopicPartition("t", 0): 100, TopicPartition("t", 1): 7, TopicPartition("t", 2): 9}
    >>> [str(each) for each in plan_ranges(at, ends, 10)]
    ['t-0-0-8', 't-1-5-7']
    """
    lags = {each: ends[each] - start for each, start in positions.items() if ends.get(each, start) > start}
    served = sorted(lags)
    if 0 < max_offsets < len(served):
        first = turn * max_offsets % len(served)
        served = (served + served)[first : first + max_offsets]
    left = max_offsets
    shares: dict[TopicPartition, int] = {}
    for index, each in enumerate(sorted(served, key=lambda one: (lags[one], one))):  # the short ones first
        shares[each] = min(lags[each], left // (len(served) - index))
        left -= shares[each]
    return tuple(
        OffsetRange(each.topic, each.partition, positions[each], positions[each] + share)
        for each, share in sorted(shares.items())
        if share > 0
    )


def describe(ranges: tuple[OffsetRange, ...]) -> str:
    """Describe the ranges for a person, in one line of limited length.

    >>> describe((OffsetRange("clicks", 0, 100, 600), OffsetRange("clicks", 3, 7, 507)))
    '1,000 offsets: clicks-0 100..600, clicks-3 7..507'
    """
    named = [f"{each.topic}-{each.partition} {each.start}..{each.end}" for each in ranges]
    return f"{offsets_in(ranges):,} offsets: {some(named, DESCRIBED_MAX)}"


def offsets_in(ranges: Iterable[OffsetRange]) -> int:
    """The number of offsets in the ranges, an upper limit for the number of their records."""
    return sum(each.end - each.start for each in ranges)
