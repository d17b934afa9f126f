"""Sinks that a batch may be written to again: one file for each range, named by it. Part of this runs in executors.

A batch that is read again after a crash has the same ranges as long as nobody else took them over, and then replaces
its own files. So these outputs hold nothing twice where the ranges are the same.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch, OffsetRange

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

WRITTEN_SCHEMA = "file string, rows bigint"


class Written(NamedTuple):
    """One file of a batch."""

    file: str  # its name within the folder
    rows: int


def file_name(each: OffsetRange) -> str:
    """`topic-partition-start-end.parquet`.

    >>> file_name(OffsetRange("clicks", 0, 100, 600))
    'clicks-0-100-600.parquet'
    """
    return f"{each.topic}-{each.partition}-{each.start}-{each.end}.parquet"


def write_parquet_ranges(df: DataFrame, batch: Batch, folder: str | Path) -> tuple[Written, ...]:
    """Write the batch's rows as one Parquet file for each range that has rows; returns the files, sorted.

    `df` still has the columns topic, partition and offset, and the rows of a range in one task, as the reader makes
    them: no repartition, no minPartitions before this (coalesce is harmless). A file is complete when it has its name.
    `folder` (made if missing) is one that driver and executors share. UsageError when a range was spread over tasks.
    """
    missing = {"topic", "partition"} - set(df.columns)
    if missing:
        raise UsageError(f"the DataFrame has no column {sorted(missing)[0]!r}; keep topic and partition for this sink")
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    writer = range_writer(batch.ranges, str(path))
    written = sorted(Written(row.file, row.rows) for row in df.mapInArrow(writer, WRITTEN_SCHEMA).collect())
    names = [each.file for each in written]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{twice[0]} was written by several tasks; do not repartition a batch before this sink")
    return tuple(written)


def range_writer(
    ranges: Iterable[OffsetRange], folder: str
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """What a task does: write its rows to the files of their ranges, rename, tell names and counts."""
    by_partition = {each.topic_partition: each for each in ranges}

    def write(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        with _Files(Path(folder)) as files:
            for batch in batches:
                for partition, part in _by_partition(batch):
                    files.write(file_name(by_partition[partition]), part)
            written = files.finish()
        yield pyarrow.RecordBatch.from_pydict(
            {"file": [each.file for each in written], "rows": [each.rows for each in written]},
            schema=pyarrow.schema([("file", pyarrow.string()), ("rows", pyarrow.int64())]),
        )

    return write


def _by_partition(batch: pyarrow.RecordBatch) -> Iterator[tuple[TopicPartition, pyarrow.Table]]:
    """The rows of each partition, in their order; as a rule a batch has one only, and nothing is copied."""
    import pyarrow
    import pyarrow.compute as compute

    table = pyarrow.Table.from_batches([batch])
    found = table.group_by(["topic", "partition"]).aggregate([]).to_pylist()
    for one in found:
        mine = table
        if len(found) > 1:
            same_topic = compute.equal(table["topic"], one["topic"])
            mine = table.filter(compute.and_(same_topic, compute.equal(table["partition"], one["partition"])))
        yield TopicPartition(one["topic"], one["partition"]), mine


class _Files:
    """The files of one task; those not finished leave nothing behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._suffix = uuid.uuid4().hex
        self._open: dict[str, Any] = {}
        self._rows: dict[str, int] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for name, writer in self._open.items():
            with contextlib.suppress(Exception):
                writer.close()
            self._draft(name).unlink(missing_ok=True)

    def write(self, name: str, part: pyarrow.Table) -> None:
        from pyarrow import parquet

        if name not in self._open:
            self._open[name] = parquet.ParquetWriter(self._draft(name), part.schema)
        self._open[name].write_table(part)
        self._rows[name] = self._rows.get(name, 0) + part.num_rows

    def finish(self) -> list[Written]:
        """Close all and give them their names."""
        for name in sorted(self._open):
            self._open.pop(name).close()
            self._draft(name).replace(self._folder / name)
        return [Written(name, rows) for name, rows in sorted(self._rows.items())]

    def _draft(self, name: str) -> Path:
        return self._folder / f".{name}.{self._suffix}"  # readers of a folder skip hidden files
