"""Finds the ranges of a batch of a `format("zkcoord")` query. Spark passes only a number; the query's checkpoint has
the ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch, batch_id
from zkcoord.spark.stream.offsets import EMPTY, Offset, is_offset, to_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stream_batch(spark: SparkSession, checkpoint: str | Path, number: int) -> Batch:
    """Return the batch with which `foreachBatch` was called, for sinks that key by ranges.

    `checkpoint` is the query's `checkpointLocation`, any path that Spark can read (in `foreachBatch`, use
    `df.sparkSession`). `seq` is `number`. `replayed` is as it was planned: the checkpoint does not tell whether the
    batch runs again. Raises UsageError if the query does not have exactly one source of this kind,
    or if Spark has forgotten the batch (`spark.sql.streaming.minBatchesToRetain`, 100).
    """
    end = _offset(spark, checkpoint, number)
    start = _offset(spark, checkpoint, number - 1) if number > 0 else EMPTY
    ranges = to_read(start, end)
    return Batch(
        id=batch_id(ranges),
        seq=number,
        generation=int(end.get("generation", 0)),
        ranges=ranges,
        replayed=bool(end.get("replayed", False)),
        group=str(end.get("group", "")),
    )


def _offset(spark: SparkSession, checkpoint: str | Path, number: int) -> Offset:
    """Read Spark's file of a batch: the version of its format, the query's settings, and a line for each source."""
    path = f"{str(checkpoint).rstrip('/')}/offsets/{number}"
    try:
        row = spark.read.text(path, wholetext=True).first()
    except Exception as error:
        raise UsageError(f"batch {number} is not in the checkpoint {checkpoint}: {error}") from error
    lines = [_json(line) for line in (row[0] if row else "").splitlines()]
    found: list[Offset] = [each for each in lines if is_offset(each)]
    if len(found) != 1:
        raise UsageError(f"{path} tells of {len(found)} sources of format('zkcoord'); exactly one is needed")
    return found[0]


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
