"""A sink of one file for each range, named by the range and its topic's incarnation.

After a crash the same range is read again (`zkcoord.spark.driver.announcing`), and replaces its own file. So the folder
contains each record once.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch, OffsetRange, check_batch
from zkcoord.spark.sinks.files_in_stores import write_to_store
from zkcoord.spark.sinks.places import is_uri
from zkcoord.spark.sinks.range_names import SHARED, SPREAD, Written, file_name, tell_replaced
from zkcoord.spark.sinks.spark_writer import write_drafts

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame

OLD_S = 24 * 3600  # age of drafts that nobody writes any more, by the clock of the file system
PARTITIONS = ".partitions"  # follows the name of a folder of drafts: a file that names their partitions


def write_parquet_ranges(
    df: DataFrame, batch: Batch, folder: str | Path, *, storage_options: Mapping[str, Any] | None = None
) -> tuple[Written, ...]:
    """Write the batch's rows as one Parquet file for each range that has rows. Return the files, sorted by name.

    `df` must have the columns topic and partition, and all rows of a range must be in one task, as the reader makes
    them: do not call repartition or coalesce before this. `folder` is a path that driver and executors share (it is
    created if missing), or a URI: `s3://`, `s3a://`, `gs://`, `abfss://`, `hdfs://`, `viewfs://`. A file gets its name
    atomically, when it is complete. `storage_options` are the arguments of Arrow's file system for that URI, such as
    `pyarrow.fs.S3FileSystem`.

    Raises UsageError if a range is spread over tasks, or, below a path, if a task has several ranges or this program
    does not see the executors' files. Then no file has got its name; in an object store the file of such a range is
    removed again.

    Below a path, Spark's readers do not see a file that is being written (`.<batch id>-…`). Files that a program left
    when it died are removed by the batch's next run, and after a day by any batch of one of its partitions. (Spark's
    own writer is used there, and the footers show which file belongs to which range: no Python worker is started.)
    """
    check_batch(batch)
    missing = sorted({"topic", "partition"} - set(df.columns))
    if missing:
        raise UsageError(f"the DataFrame has no column {missing[0]!r}; keep topic and partition for this sink")
    if is_uri(folder):
        return write_to_store(df, batch, str(folder).rstrip("/"), storage_options or {})
    if storage_options is not None:
        raise UsageError(f"storage_options are for a URI, and folder {str(folder)!r} is a path")
    path = Path(folder).absolute()
    drafts = path / f".{batch.id}-{batch.generation}-{uuid.uuid4().hex[:8]}"  # not shared with a program that slept
    path.mkdir(parents=True, exist_ok=True)
    told = drafts.with_name(f"{drafts.name}{PARTITIONS}")
    try:
        told.write_text("\n".join(str(each.topic_partition) for each in batch.ranges), encoding="utf-8")
        _remove_left(path, batch, told.stat().st_mtime)
        return name_files(write_drafts(df, drafts), batch.ranges, path, replayed=batch.replayed)
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
        told.unlink(missing_ok=True)


def _remove_left(folder: Path, batch: Batch, now_s: float) -> None:
    """Remove drafts of earlier generations: those of this batch, and old ones of its partitions.

    A program that lost a partition may still be writing, and must not fail because of this: a query goes on with its
    next batch.
    """
    ours = {str(each.topic_partition) for each in batch.ranges}
    for told in folder.glob(f".*{PARTITIONS}"):
        drafts = told.with_suffix("")
        with suppress(FileNotFoundError):  # another program was faster
            of_batch = drafts.name.startswith(f".{batch.id}-")
            old = now_s - told.stat().st_mtime > OLD_S
            ended = of_batch or (old and ours.intersection(told.read_text(encoding="utf-8").splitlines()))
            if ended and int(drafts.name.rsplit("-", 2)[1]) < batch.generation:
                shutil.rmtree(drafts, ignore_errors=True)
                told.unlink()


def name_files(
    drafts: Mapping[Path, FileMetaData], ranges: Iterable[OffsetRange], folder: Path, *, replayed: bool = False
) -> tuple[Written, ...]:
    """Give each Parquet file, of which the footer is given, the name of its range in `folder`. Raises UsageError if
    they do not fit.

    Warns if a batch that is not `replayed` replaces a file, since a crash cannot be the reason.
    """
    by_partition = {each.topic_partition: each for each in ranges}
    found: dict[Path, Written] = {}
    for draft, footer in drafts.items():
        if footer.num_rows:
            partition = _partition_in(footer)
            if partition not in by_partition:
                raise UsageError(SHARED)
            found[draft] = Written(file_name(by_partition[partition]), footer.num_rows)
    if len({each.file for each in found.values()}) < len(found):
        raise UsageError(SPREAD)
    there = [each.file for each in found.values() if not replayed and (folder / each.file).exists()]
    for draft, written in found.items():
        draft.replace(folder / written.file)
    tell_replaced(there, folder)
    return tuple(sorted(found.values()))


def _partition_in(footer: FileMetaData) -> TopicPartition | None:
    """Return the partition of a file's rows, if all rows belong to one."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    topics = {value for group in groups for value in _bounds(group, "topic")}
    partitions = {value for group in groups for value in _bounds(group, "partition")}
    if len(topics) != 1 or len(partitions) != 1:
        return None
    topic = topics.pop()
    return TopicPartition(topic.decode() if isinstance(topic, bytes) else topic, partitions.pop())


def _bounds(group: Any, column: str) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a column in one row group."""
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_min_max:
            return chunk.statistics.min, chunk.statistics.max
    return None, None
