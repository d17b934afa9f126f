"""The reader without a jar: a Python data source over confluent-kafka. This is what runs in Spark's Python workers.

Spark is handed these classes and functions by value, so a worker needs confluent-kafka and pyarrow, not zkcoord: this
module stands alone. Its driver's side is `zkcoord.spark.reader_ranges`.
"""

from __future__ import annotations

import json
import sys
import time
import zipimport
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

FORMAT = "zkcoord-ranges"
RECORDS_MAX = 2_000  # of one Arrow batch: few enough that messages are still in the caches when columns are made
POLL_S = 0.1  # a wait for the rest of an Arrow batch
PREFETCH_MAX = 100_000  # librdkafka's own limit; a short range asks for less, as what lies behind it is for nobody
NO_CLIENT = "the Python workers of Spark lack confluent-kafka"  # how the driver recognises it in a Java trace
SILENT = "Kafka delivered nothing"
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


def ours(read: Mapping[str, str], count: int) -> dict[str, Any]:
    """librdkafka's settings for reading one range of `count` offsets; what is said here is not the user's."""
    return {
        "queued.min.messages": str(max(1, min(PREFETCH_MAX, count))),
        "fetch.wait.max.ms": "10",  # the end of a range may be the log's end, behind which nothing comes
        "fetch.queue.backoff.ms": "5",  # when enough is queued; by default 1 s, five times as long as that much lasts
        **read,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
    }


@dataclass(frozen=True)
class Slice(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    topic: str
    partition: int
    start: int
    end: int


class RangesSource(DataSource):  # type: ignore[misc]
    """`spark.read.format(FORMAT)` with the option `plan`: JSON of slices, settings, headers and timeout."""

    @classmethod
    def name(cls) -> str:
        """As Spark asks for it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's own Kafka source."""
        forget_archives()
        return SCHEMA + (HEADERS if json.loads(self.options["plan"])["headers"] else "")

    def reader(self, schema: object) -> RangesReader:
        """As Spark asks for it."""
        return RangesReader(json.loads(self.options["plan"]))


class RangesReader(DataSourceReader):  # type: ignore[misc]
    """Reads slices, one task each."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[Slice]:
        """The tasks, in the order of the plan. (Spark takes an empty list for a single task without a slice.)"""
        forget_archives()
        return [Slice(*each) for each in self._plan["slices"]]

    def read(self, partition: Slice | None) -> Iterator[pa.RecordBatch]:
        """The records of one slice."""
        return iter(()) if partition is None else read_in_worker(self._plan, partition)


def read_in_worker(plan: Mapping[str, Any], each: Slice) -> Iterator[pa.RecordBatch]:
    """The records of a slice as `plan` says; the worker's next task begins sooner for it."""
    try:
        yield from read_slice(plan["settings"], each, headers=plan["headers"], timeout_ms=plan["timeout_ms"])
    finally:
        forget_archives()


def forget_archives() -> None:
    """Spare this process's next task 80 ms.

    Spark's workers call `importlib.invalidate_caches()` before each task, and before Python 3.13 every finder of a zip
    archive then reads the archive's whole directory again: 17 times that of pyspark.zip. Finders are a cache: an import
    that needs one makes it again, from a directory that is still known.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def read_slice(
    settings: Mapping[str, str], each: Slice, *, headers: bool = False, timeout_ms: int = 20_000
) -> Iterator[pa.RecordBatch]:
    """The records of a slice as Arrow batches in Spark's Kafka columns; fewer than its offsets where there are gaps.

    RuntimeError when the log does not hold `each.start`, and when nothing comes for `timeout_ms` before the end.
    """
    try:
        from confluent_kafka import Consumer, KafkaError, TopicPartition
    except ImportError as error:
        raise RuntimeError(f"{NO_CLIENT} ({sys.executable}): {error}") from error
    consumer = Consumer(ours(settings, each.end - each.start))
    try:
        consumer.assign([TopicPartition(each.topic, each.partition, each.start)])
        position, heard = each.start, time.monotonic()
        while position < each.end:
            messages = consumer.consume(min(RECORDS_MAX, each.end - position), POLL_S)
            records = []
            for message in messages:
                trouble = message.error()
                if trouble is None:
                    records.append(message)
                elif trouble.code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset())
                elif trouble.fatal() or not trouble.retriable():
                    raise RuntimeError(f"{each.topic}-{each.partition} cannot be read at {position}: {trouble.str()}")
            while records and records[-1].offset() >= each.end:
                position = each.end
                records.pop()
            if records:
                position = max(position, records[-1].offset() + 1)
                yield to_arrow(each, records, headers)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout_ms / 1000:
                at = f"{each.topic}-{each.partition} from {position} to {each.end}"
                raise RuntimeError(f"{SILENT} of {at} for {timeout_ms} ms")
    finally:
        consumer.close()


def to_arrow(each: Slice, records: Sequence[Any], headers: bool) -> pa.RecordBatch:
    """Messages of one partition as columns."""
    count = len(records)
    stamps = [record.timestamp() for record in records]
    columns = {
        "key": pa.array([record.key() for record in records], pa.binary()),
        "value": pa.array([record.value() for record in records], pa.binary()),
        "topic": pa.array([each.topic] * count, pa.string()),
        "partition": pa.array([each.partition] * count, pa.int32()),
        "offset": pa.array([record.offset() for record in records], pa.int64()),
        "timestamp": pa.array([ms * 1000 for _, ms in stamps], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "timestampType": pa.array([kind - 1 for kind, _ in stamps], pa.int32()),
    }
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        found = [[{"key": k, "value": v} for k, v in record.headers() or ()] or None for record in records]
        columns["headers"] = pa.array(found, kind)
    return pa.RecordBatch.from_pydict(columns)
