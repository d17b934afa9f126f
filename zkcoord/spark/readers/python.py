"""Reads without a jar: a Python data source that uses confluent-kafka. This module runs in Spark's Python workers.

Spark passes these classes and functions by value: a worker needs confluent-kafka and pyarrow, but not zkcoord. So this
module imports no other module of zkcoord. Its counterpart in the driver is `zkcoord.spark.readers.ranges`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zipimport
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from zkcoord.spark.readers.kept_clients import idle_clients, key_of

FORMAT = "zkcoord-ranges"
RECORDS_MAX = 2_000  # of one Arrow batch: so few that messages are still in the caches when columns are made
POLL_S = 0.1  # how long to wait for the rest of an Arrow batch
PATIENCE_MS = 2_000  # how long a kept client may deliver nothing before a new one replaces it
PREFETCH_MAX = 100_000  # librdkafka's own limit; a short range requests less, since messages after it are not used
NO_CLIENT = "the Python workers of Spark lack confluent-kafka"  # the driver recognises it in a Java trace
SILENT = "Kafka delivered nothing"
ELSEWHERE = "the brokers that a task reads are of another Kafka cluster"  # likewise
BROKEN = ("FAIL ", "CLUSTERID ")  # beginnings of librdkafka's lines that report the end of a connection
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


def ours(read: Mapping[str, str], count: int) -> dict[str, Any]:
    """Return librdkafka's settings for reading `count` offsets of each partition. A user cannot change them."""
    return {
        "queued.min.messages": str(max(1, min(PREFETCH_MAX, count))),
        "fetch.wait.max.ms": "10",  # the end of a range may be the log's end, after which no message comes
        # when enough is queued; the default is 1 s, five times as long as the queue lasts
        "fetch.queue.backoff.ms": "5",
        **read,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
    }


class Slice(NamedTuple):
    """The offsets from `start` up to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Slices(InputPartition):  # type: ignore[misc]
    """The slices that one task reads, at most one for a partition, of the cluster with this id (None: any cluster)."""

    slices: tuple[Slice, ...]
    cluster: str | None = None


def as_task(slices: Iterable[Sequence[Any]], cluster: str | None = None) -> Slices:
    """Make a task from the JSON values of its slices. Additional values are ignored."""
    return Slices(tuple(Slice(*each[:4]) for each in slices), cluster)


class RangesSource(DataSource):  # type: ignore[misc]
    """`spark.read.format(FORMAT)` with the option `plan`: JSON of tasks, settings, headers and timeout."""

    @classmethod
    def name(cls) -> str:
        """Spark calls it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's own Kafka source."""
        forget_archives()
        return SCHEMA + (HEADERS if json.loads(self.options["plan"])["headers"] else "")

    def reader(self, schema: object) -> RangesReader:
        """Spark calls it."""
        return RangesReader(json.loads(self.options["plan"]))


class RangesReader(DataSourceReader):  # type: ignore[misc]
    """Reads the slices of each task."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[Slices]:
        """Return the tasks in the order of the plan. (For an empty list Spark makes a single task without a slice.)"""
        forget_archives()
        return [as_task(each, self._plan.get("cluster")) for each in self._plan["tasks"]]

    def read(self, partition: Slices | None) -> Iterator[pa.RecordBatch]:
        """Return the records of one task."""
        return iter(()) if partition is None else read_in_worker(self._plan, partition)


def read_in_worker(plan: Mapping[str, Any], task: Slices) -> Iterator[pa.RecordBatch]:
    """Return the records of a task as `plan` says, and prepare the worker for a faster next task."""
    try:
        kept = "SPARK_REUSE_WORKER" in os.environ  # otherwise the worker ends with the task
        yield from read_slices(
            plan["settings"],
            task.slices,
            headers=plan["headers"],
            timeout_ms=plan["timeout_ms"],
            keep=kept,
            cluster=task.cluster,
        )
    finally:
        forget_archives()


def forget_archives() -> None:
    """Save this process's next task 80 ms.

    Spark's workers call `importlib.invalidate_caches()` before each task. Before Python 3.13 every finder of a zip
    archive then reads the archive's whole directory again: 17 times that of pyspark.zip. Finders are only a cache: an
    import that needs one makes it again, from a directory that is still known.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


class Client:
    """A consumer of librdkafka, and whether one of its connections has ended since it last told its cluster."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer

        self.doubtful = True
        self.native: Any = Consumer(settings, logger=self)

    def log(self, level: int, text: str, *values: object) -> None:
        """Take in a line of librdkafka's log, and print it as librdkafka does."""
        line = text % values
        self.doubtful = self.doubtful or line.startswith(BROKEN)
        print(line, file=sys.stderr)

    def check(self, cluster: str | None, topic: str, timeout_ms: int) -> None:
        """Raises RuntimeError unless all messages until now come from this cluster (None: any cluster). It asks the
        brokers for the first records of a task, and after the end of a connection."""
        from confluent_kafka import KafkaException

        if cluster is None or not self.doubtful:
            return
        try:
            told = self.native.list_topics(topic, timeout=timeout_ms / 1000).cluster_id
        except KafkaException as error:
            raise RuntimeError(f"{SILENT}, not even its cluster's id, for {timeout_ms} ms: {error}") from error
        if told not in (None, cluster):
            raise RuntimeError(f"{ELSEWHERE}: {told!r} instead of {cluster!r}, at {topic}")
        self.doubtful = False

    def close(self) -> None:
        """End the client."""
        self.native.close()
        self.native = None  # which knows this, too


def read_slices(
    settings: Mapping[str, str],
    slices: Sequence[Slice],
    *,
    headers: bool = False,
    timeout_ms: int = 20_000,
    keep: bool = False,
    cluster: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the records as Arrow batches, each of one slice and in its order, with Spark's Kafka columns.

    If the log has gaps, there are fewer records than offsets. `keep`: use a Kafka client that an earlier call has left,
    and leave one for the next call. Raises RuntimeError if a log does not contain a slice's start, if nothing comes for
    `timeout_ms` before the end, and if the brokers belong to another cluster than `cluster`.
    """
    try:
        import confluent_kafka  # noqa: F401  # a task says at once that it is not there
    except ImportError as error:
        raise RuntimeError(f"{NO_CLIENT} ({sys.executable}): {error}") from error
    left = {(each.topic, each.partition): each for each in slices if each.start < each.end}  # `start` is the position
    most = max((each.end - each.start for each in left.values()), default=0)
    if keep:  # one client serves ranges of similar sizes
        most = 1 << max(most, RECORDS_MAX).bit_length()
    chosen = ours(settings, most)
    idle, key = (idle_clients(), key_of(chosen)) if keep and left else (None, None)
    client = idle.take(key) if idle else None
    if client is not None:
        try:
            client.doubtful = True
            patience_ms = min(timeout_ms, PATIENCE_MS)
            yield from assigned(client, left, headers, patience_ms, alone=len(slices) == 1, cluster=cluster)
        # for example because it knows only brokers that are gone; a new client reads the rest, and its error is final
        except Exception:
            client = None
    if left:
        client = Client(chosen)
        yield from assigned(client, left, headers, timeout_ms, alone=len(slices) == 1, cluster=cluster)
    if client is None:
        return
    if idle:
        idle.put(key, client)
    else:
        client.close()


def assigned(
    kept: Client,
    left: dict[tuple[str, int], Slice],
    headers: bool,
    timeout_ms: int,
    *,
    alone: bool,
    cluster: str | None,
) -> Iterator[pa.RecordBatch]:
    """Return the records of the slices in `left`, as `read_slices` does, and remove what was read from `left`.

    Afterwards the client has no assignment. If this ends early, the client is closed.
    """
    from confluent_kafka import TopicPartition

    client = kept.native
    try:
        mine = [TopicPartition(each.topic, each.partition, each.start) for each in left.values()]
        client.assign(mine)
        heard = time.monotonic()
        while left:
            wanted = sum(each.end - each.start for each in left.values())
            messages = client.consume(min(RECORDS_MAX, wanted), POLL_S)
            if messages:
                kept.check(cluster, next(iter(left))[0], timeout_ms)
            for each, position, records in advances(left, messages, alone=alone):
                if records:
                    yield to_arrow(each, records, headers)
                left[each.topic, each.partition] = each._replace(start=position)
                if position >= each.end:
                    del left[each.topic, each.partition]
                    if left:
                        client.pause([TopicPartition(each.topic, each.partition)])
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout_ms / 1000:
                each = next(iter(left.values()))
                at = f"{each.topic}-{each.partition} from {each.start} to {each.end}"
                raise RuntimeError(f"{SILENT} of {at} for {timeout_ms} ms")
        if len(mine) > 1:
            client.resume(mine)  # a pause would outlast the assignment
        client.unassign()
    except BaseException:
        kept.close()
        raise


def advances(
    left: Mapping[tuple[str, int], Slice], messages: Sequence[Any], *, alone: bool
) -> Iterator[tuple[Slice, int, list[Any]]]:
    """Return, for each slice with new messages, the next offset to read, and the slice's records.

    `alone`: all messages belong to the one slice. Raises RuntimeError if a message is an error.
    """
    found: dict[tuple[str, int], list[Any]] = {}
    records = [each for each in messages if each.error() is None]
    if alone:
        found = dict.fromkeys(left, records)
    else:
        for record in records:
            found.setdefault((record.topic(), record.partition()), []).append(record)
    ends = {} if len(records) == len(messages) else log_ends(left, messages)
    for key, each in list(left.items()):
        mine = found.get(key, [])
        position = max(each.start, ends.get(key, 0), mine[-1].offset() + 1 if mine else 0)
        while mine and mine[-1].offset() >= each.end:
            mine.pop()
        if position > each.start:
            yield each, position, mine


def log_ends(left: Mapping[tuple[str, int], Slice], messages: Iterable[Any]) -> dict[tuple[str, int], int]:
    """Return the ends of logs, from messages without a record. Raises RuntimeError for any other such message."""
    from confluent_kafka import KafkaError

    ends = {}
    for message in messages:
        trouble = message.error()
        key = (message.topic(), message.partition())
        if trouble is None:
            continue
        if trouble.code() == KafkaError._PARTITION_EOF:
            ends[key] = message.offset()
        elif trouble.fatal() or not trouble.retriable():
            each = left.get(key) or next(iter(left.values()))
            raise RuntimeError(f"{each.topic}-{each.partition} cannot be read at {each.start}: {trouble.str()}")
    return ends


def to_arrow(each: Slice, records: Sequence[Any], headers: bool) -> pa.RecordBatch:
    """The messages of one partition as columns."""
    count = len(records)
    stamps = [record.timestamp() for record in records]
    kinds = {kind for kind, _ in stamps}  # usually one
    types = pa.repeat(kinds.pop() - 1, count) if len(kinds) == 1 else pa.array([kind - 1 for kind, _ in stamps])
    columns = {
        "key": pa.array([record.key() for record in records], pa.binary()),
        "value": pa.array([record.value() for record in records], pa.binary()),
        "topic": pa.repeat(each.topic, count),
        "partition": pa.repeat(pa.scalar(each.partition, pa.int32()), count),
        "offset": pa.array([record.offset() for record in records], pa.int64()),
        "timestamp": pa.array([ms for _, ms in stamps], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        "timestampType": types.cast(pa.int32()),
    }
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        found = [[{"key": k, "value": v} for k, v in record.headers() or ()] or None for record in records]
        columns["headers"] = pa.array(found, kind)
    return pa.RecordBatch.from_pydict(columns)
