"""Kafka's offset log as DataFrames: every commit that it still has, and a report for each partition.

The log is compacted: of old segments Kafka keeps only the last commit of each partition of a group. So rates and
rewinds are computed from what is left, as a rule at least the last days.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from zkcoord.core.assignors.legacy.java_order import java_hash
from zkcoord.core.model import TopicPartition
from zkcoord.errors import RefusedError, UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.readers.kafka import POLL_TIMEOUT_MS
from zkcoord.spark.readers.ranges import read_plan, register, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OFFSET_LOG = "__consumer_offsets"
# all commits of a busy group are in one partition of the log: its range is divided for all cores
TASK_RECORDS_MAX = 250_000
RETENTION_MS = 7 * 24 * 3_600_000  # `offsets.retention.minutes` of brokers since 2.0
KEYS = ["group", "topic", "partition"]


def commits(
    spark: SparkSession,
    bootstrap_servers: str,
    groups: Collection[str] | None = None,
    *,
    since_ms: int | None = None,
    config: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the commits and tombstones of these groups (None: of all), with the columns of `decoding.COMMIT`.

    `since_ms`: only records of that time or later, in ms since 1970. `config` holds librdkafka's settings. The log is
    read by confluent-kafka in Python workers, in parallel and without a jar. Raises UsageError without pyarrow or
    confluent-kafka, and RefusedError if these credentials may not see the offset log.
    """
    with KafkaClient(bootstrap_servers, config) as client:
        ranges = log_ranges(client, groups, since_ms)
    return decoded(spark, bootstrap_servers, ranges, groups, config)


def decoded(
    spark: SparkSession,
    bootstrap_servers: str,
    ranges: Collection[OffsetRange],
    groups: Collection[str] | None = None,
    config: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the commits in these ranges of a log in the offset log's format, as `commits` does."""
    try:
        from zkcoord.spark.history import decoding, source
        from zkcoord.spark.readers import kept_clients, python
    except ImportError as error:
        raise UsageError(f"this needs an extra package: pip install 'zkcoord[spark]' ({error})") from error
    register(spark, source.OffsetLogSource, python, kept_clients, decoding, source)
    plan = read_plan(bootstrap_servers, "zkcoord-offset-log", config or {}, headers=False, timeout_ms=POLL_TIMEOUT_MS)
    plan["tasks"] = tasks_of(ranges, TASK_RECORDS_MAX)
    chosen = json.dumps(None if groups is None else sorted(groups))
    return spark.read.format(source.FORMAT).option("plan", json.dumps(plan)).option("groups", chosen).load()


def log_ranges(client: KafkaClient, groups: Collection[str] | None, since_ms: int | None) -> list[OffsetRange]:
    """Return the ranges of the offset log that must be read; for single groups only their partitions of the log."""
    found = [partition for partition in client.partitions() if partition.topic == OFFSET_LOG]
    if not found:
        raise RefusedError(
            f"Kafka shows no {OFFSET_LOG}: no group has ever committed to Kafka, or these credentials lack the right to"
            " describe and read that topic"
        )
    if groups is not None:
        mine = {log_partition(group, len(found)) for group in groups}
        found = [partition for partition in found if partition.partition in mine]
    starts = client.beginning_offsets(found)
    if since_ms is not None:
        starts = {p: max(at, starts[p]) for p, at in client.reset_positions(found, since_ms).items()}
    ends = client.end_offsets(found)
    return [OffsetRange(*p, starts[p], ends[p]) for p in found if starts[p] < ends[p]]


def log_partition(group: str, partitions: int) -> int:
    """Return the partition of the offset log that holds a group (Kafka's `partitionFor`).

    >>> [log_partition(group, 50) for group in ("test", "my-group", "group1", "polygenelubricants")]
    [48, 12, 40, 0]
    """
    code = java_hash(group)
    return (0 if code == -(2**31) else abs(code)) % partitions


def report(commits: DataFrame, *, retention_ms: int = RETENTION_MS) -> DataFrame:
    """Return one row for each group, topic and partition, in their order.

    `commits` is the number of commits with offsets, `first_ms` and `last_ms` are the times of the first and last of
    them, `offset` is the last one, and `changed_ms` is when it was reached. `rewinds` counts commits below the one
    before, and `furthest` is the largest such step in offsets. `earlier_tenure` counts commits of a consumer that had
    lost the partition before (docs/offsets.md), `foreign` commits without zkcoord's metadata, `unreadable` records that
    cannot be parsed. `removed_ms` is when the last commit was removed, null if it was not. `expired`: its retention was
    over by then (`retention_ms`, for commits without an expiry of their own), so nobody deleted it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    in_order = Window.partitionBy(*KEYS).orderBy("log_offset")
    expires_ms = fn.coalesce("expire_ms", fn.try_add("commit_ms", fn.lit(retention_ms)))
    seen = _with_tenures(commits).withColumns({"previous": _previous(), "ends_ms": fn.lag(expires_ms).over(in_order)})
    offset, previous = fn.col("offset"), fn.col("previous")
    back = previous > offset
    changed = previous.isNull() | (previous != offset)
    last_is_tombstone = fn.max_by("tombstone", "log_offset")

    def count(condition: Column) -> Column:
        return fn.count(fn.when(condition, True))

    rows = seen.groupBy(*KEYS).agg(
        fn.count("offset").alias("commits"),
        fn.min("commit_ms").alias("first_ms"),
        fn.max("commit_ms").alias("last_ms"),
        fn.max_by("offset", fn.when(offset.isNotNull(), fn.col("log_offset"))).alias("offset"),
        fn.max(fn.when(offset.isNotNull() & changed, fn.col("commit_ms"))).alias("changed_ms"),
        count(back).alias("rewinds"),
        fn.max(fn.when(back, fn.try_subtract(previous, offset))).alias("furthest"),
        count(fn.col("earlier")).alias("earlier_tenure"),
        count(offset.isNotNull() & fn.col("mzxid").isNull()).alias("foreign"),
        count(offset.isNull() & ~fn.col("tombstone")).alias("unreadable"),
        fn.when(last_is_tombstone, fn.max_by("log_ms", "log_offset")).alias("removed_ms"),
        (last_is_tombstone & (fn.max_by(fn.col("log_ms") >= fn.col("ends_ms"), "log_offset"))).alias("expired"),
    )
    return rows.orderBy(*KEYS)


def _with_tenures(commits: DataFrame) -> DataFrame:
    """Add `mzxid`, from zkcoord's metadata (null: the commit is foreign), and `earlier`: there was a commit of a
    later tenure before. Metadata is read as in `zkcoord.offsets.metadata`: a value that is no number there is
    foreign, too."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    before = Window.partitionBy(*KEYS).orderBy("log_offset").rowsBetween(Window.unboundedPreceding, -1)
    of_the_tree = Window.partitionBy(*KEYS, "tree").orderBy("log_offset").rowsBetween(Window.unboundedPreceding, -1)

    def told(key: str) -> Column:
        return fn.get_json_object("metadata", f"$.{key}")

    ours = fn.col("metadata").startswith('{"zkcoord":') & (told("zkcoord") == "1")
    fits = told("offset").try_cast("bigint") == fn.col("offset")
    mzxid = fn.when(ours & fits, told("mzxid").try_cast("bigint"))
    stamped = commits.withColumns({"mzxid": mzxid, "tree": fn.when(mzxid.isNotNull(), told("tree"))})
    known = stamped.withColumns(
        {
            "tenure": fn.max("mzxid").over(of_the_tree),  # zxids of two trees cannot be compared
            "left": fn.last("tree", ignorenulls=True).over(before) != fn.col("tree"),
        }
    )
    lower, moved = fn.col("mzxid") < fn.col("tenure"), fn.col("left") & (fn.col("mzxid") == fn.col("tenure"))
    return known.withColumn("earlier", lower | moved)


def _previous() -> Column:
    """The committed offset before a commit; null after a tombstone, since such a commit is no rewind."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    before = Window.partitionBy(*KEYS).orderBy("log_offset").rowsBetween(Window.unboundedPreceding, -1)
    says = fn.col("tombstone") | fn.col("offset").isNotNull()
    return fn.last(fn.when(says, fn.struct("offset")), ignorenulls=True).over(before)["offset"]


def progress(commits: DataFrame, bucket_ms: int) -> DataFrame:
    """Return, for each partition and each time span of `bucket_ms` with a commit, the number of commits and the last
    offset. The columns are `at_ms` (the span's end), `commits`, `rewinds`, `offset`."""
    from pyspark.sql import functions as fn

    at_ms = (fn.floor(fn.col("log_ms") / bucket_ms) + 1) * bucket_ms
    told = commits.withColumns({"at_ms": at_ms, "back": _previous() > fn.col("offset")}).where("offset is not null")
    rows = told.groupBy(*KEYS, "at_ms").agg(
        fn.count("offset").alias("commits"),
        fn.count(fn.when(fn.col("back"), True)).alias("rewinds"),
        fn.max_by("offset", "log_offset").alias("offset"),
    )
    return rows.orderBy(*KEYS, "at_ms")


def ends_at(client: KafkaClient, partitions: Collection[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
    """Return the end of each partition's log at that time, by its records' timestamps. Partitions that are gone are
    left out."""
    found, _ = client.ask_offsets(partitions, at_ms, "read_uncommitted")
    later = [partition for partition, offset in found.items() if offset < 0]  # no record came since
    ends, _ = client.ask_offsets(later, "latest", "read_uncommitted") if later else ({}, {})
    return {**found, **ends}
