"""A sink of one file for each range, named by the range and its topic's incarnation.

After a crash the same range is read again (`zkcoord.spark.announcing`), and replaces its own file. So the folder holds
each record once.
"""

from __future__ import annotations

import logging
import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch, OffsetRange, check_batch, is_later

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The folder of drafts is for us alone, so Spark may put files into it directly (version 2) and need not mark its end.
WRITER_OPTIONS = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


AGAIN = (
    "this batch is read for the first time. If somebody set the group's offsets back, or a consumer did not announce, "
    "these are the same records. If the group and the topic were deleted and created again, give the sink another place"
)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Written(NamedTuple):
    """One file of a batch."""

    file: str  # its name within the folder
    rows: int


def file_name(each: OffsetRange) -> str:
    """Return `topic-partition-start-end.parquet`, with `.incarnation` before the suffix for a topic created again.

    >>> file_name(OffsetRange("clicks", 0, 100, 600)), file_name(OffsetRange("clicks", 0, 100, 600, incarnation=2))
    ('clicks-0-100-600.parquet', 'clicks-0-100-600.2.parquet')
    """
    again = f".{each.incarnation}" if is_later(each) else ""
    return f"{each.topic}-{each.partition}-{each.start}-{each.end}{again}.parquet"


def write_parquet_ranges(df: DataFrame, batch: Batch, folder: str | Path) -> tuple[Written, ...]:
    """Write the batch's rows as one Parquet file for each range that has rows; return the files, sorted by name.

    `df` must have the columns topic and partition, and the rows of each range in a task of their own, as the reader
    makes them: no repartition, no coalesce before this. `folder` is made if missing; driver and executors share its
    path. A file gets its name when it is complete. Before, it is hidden from Spark's readers (`.<batch id>-…`); the
    next run of the batch removes it.

    UsageError for a URI, and when a range is spread over tasks or shares one; then no file has got its name.

    (Spark's own writer is used, and the footers tell which file is which: no Python worker is started.)
    """
    check_batch(batch)
    missing = sorted({"topic", "partition"} - set(df.columns))
    if missing:
        raise UsageError(f"the DataFrame has no column {missing[0]!r}; keep topic and partition for this sink")
    if SCHEME.match(str(folder)):
        raise UsageError(
            f"folder {str(folder)!r} is a URI; this sink renames files in a folder that driver and executors mount: "
            "give its path. For an object store write with a key of your own from batch.ranges"
        )
    path = Path(folder).absolute()
    drafts = path / f".{batch.id}-{batch.generation}-{uuid.uuid4().hex[:8]}"  # not shared with one that slept
    path.mkdir(parents=True, exist_ok=True)
    for left in path.glob(f".{batch.id}-*"):
        if int(left.name.split("-")[1]) < batch.generation:
            shutil.rmtree(left, ignore_errors=True)
    try:
        df.write.mode("overwrite").options(**WRITER_OPTIONS).parquet(drafts.as_uri())
        return name_files(drafts, batch.ranges, path, replayed=batch.replayed)
    finally:
        shutil.rmtree(drafts, ignore_errors=True)


def name_files(
    drafts: Path, ranges: Iterable[OffsetRange], folder: Path, *, replayed: bool = False
) -> tuple[Written, ...]:
    """Give each Parquet file in `drafts` the name of its range, in `folder`; UsageError if they do not fit.

    Warns if a batch that is not `replayed` replaces a file: a crash cannot be the reason.
    """
    by_partition = {each.topic_partition: each for each in ranges}
    found: dict[Path, Written] = {}
    for draft in sorted(drafts.glob("*.parquet")):
        rows, partition = _content(draft)
        if rows:
            if partition not in by_partition:
                raise UsageError("a task wrote rows of several ranges; no coalesce, no repartition before this sink")
            found[draft] = Written(file_name(by_partition[partition]), rows)
    if len({each.file for each in found.values()}) < len(found):
        raise UsageError(
            "a range was written by several tasks; no repartition, no max_offsets_per_task before this sink"
        )
    there = [each.file for each in found.values() if not replayed and (folder / each.file).exists()]
    for draft, written in found.items():
        draft.replace(folder / written.file)
    if there:
        text = f"{len(there)} files in {folder} were there and are replaced, {min(there)} among them: {AGAIN}"
        log_event(logging.WARNING, "files_replaced", text, files=sorted(there))
    return tuple(sorted(found.values()))


def _content(file: Path) -> tuple[int, TopicPartition | None]:
    """Read the number of rows from the file's footer, and the partition if all rows are of one."""
    from pyarrow import parquet

    footer = parquet.read_metadata(file)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    topics = {value for group in groups for value in _bounds(group, "topic")}
    partitions = {value for group in groups for value in _bounds(group, "partition")}
    if len(topics) != 1 or len(partitions) != 1:
        return footer.num_rows, None
    topic = topics.pop()
    return footer.num_rows, TopicPartition(topic.decode() if isinstance(topic, bytes) else topic, partitions.pop())


def _bounds(group: Any, column: str) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column in one row group."""
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_min_max:
            return chunk.statistics.min, chunk.statistics.max
    return None, None
