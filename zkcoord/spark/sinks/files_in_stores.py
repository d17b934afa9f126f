"""Files for ranges below a URI. Spark's tasks write them through Arrow's file systems.

    task: a file in memory for each range ──► object store: its key, at once
                                          └─► HDFS: a draft in `.zkcoord` ──► driver: renames it

A draft is named by its file and by the batch's generation, and belongs to one attempt of a task. A later batch of the
same partition, in any program, removes the drafts that dead programs and attempts have left. In S3 a batch that comes
again aborts the uploads that they have left.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UsageError
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch
from zkcoord.spark.sinks.by_value import by_value
from zkcoord.spark.sinks.range_names import SPREAD, Written, file_name, range_of, tell_replaced
from zkcoord.spark.sinks.renames import renamer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRAFTS = ".zkcoord"  # Spark and Arrow's datasets ignore names with a dot
MOVES_MAX = 8  # at a time


def write_to_store(df: DataFrame, batch: Batch, uri: str, options: Mapping[str, Any]) -> tuple[Written, ...]:
    """Write the batch's rows as one Parquet file for each range that has rows. Return the files, sorted by name.

    Raises UsageError for a range that is spread over tasks. Its file is removed then, since it lacks rows.
    """
    from zkcoord.spark.sinks import files_in_tasks, ranges_in_tasks, stores

    renamed = stores.renames(uri)
    store = _opened(stores, uri, options)
    files: dict[str, dict[str, str]] = {}
    for each in batch.ranges:
        files.setdefault(each.topic, {})[str(each.partition)] = file_name(each)
    draft = (DRAFTS, str(batch.generation)) if renamed else None
    plan = {"uri": uri, "options": dict(options), "files": files, "draft": draft, "look": not batch.replayed}
    if renamed:
        _remove_left(store, batch)
    elif batch.replayed:
        _abort_left(store, batch, options)
    task = by_value(partial(ranges_in_tasks.write_ranges, plan), ranges_in_tasks, files_in_tasks, stores)
    try:
        told = df.mapInArrow(task, ranges_in_tasks.FORMAT).collect()
    except Exception as error:
        raise _explained(error, uri, stores.LACKING) from error
    names = [row[0] for row in told]
    if None in names:
        raise UsageError("the DataFrame has rows of a partition that the batch does not have; write the batch's own")
    spread = sorted(name for name, count in Counter(names).items() if count > 1)
    if spread:
        _each(store.delete_file, [row[3] for row in told] if renamed else spread)
        raise UsageError(SPREAD)
    if renamed:
        rename = renamer(df.sparkSession, uri, options, store)
        _each(lambda row: rename(row[3], row[0], row[2]), told)
    tell_replaced([row[0] for row in told if row[2]], uri)
    return tuple(sorted(Written(*row[:2]) for row in told))


def _opened(stores: Any, uri: str, options: Mapping[str, Any]) -> Any:
    try:
        return stores.open_store(uri, options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except RuntimeError as error:
        raise UsageError(f"this program {error}") from error


def _explained(error: Exception, uri: str, lacking: str) -> Exception:
    """Return the error to raise for a job that failed."""
    if lacking not in str(error):
        return error
    why = str(error).partition(lacking)[2].splitlines()[0]
    return UsageError(f"a Python worker of Spark {lacking}{why}; it is needed on every machine of the executors: {uri}")


def _each(function: Any, given: Collection[Any]) -> None:
    """Call the function with each value, some at the same time."""
    if given:
        with ThreadPoolExecutor(min(MOVES_MAX, len(given))) as threads:
            list(threads.map(function, given))


def _remove_left(store: Any, batch: Batch) -> None:
    """Remove drafts of the batch's partitions that nobody will rename, and create the folder of drafts.

    These drafts are of an earlier generation, whose program has lost the partition, or of an earlier range of this
    generation: they belong to an attempt of a task that did not count.
    """
    from pyarrow import fs

    store.create_dir(DRAFTS, recursive=True)
    ours = {each.topic_partition: each for each in batch.ranges}
    for each in store.get_file_info(fs.FileSelector(DRAFTS)):
        file, _, run = each.base_name.rpartition(".")
        left, written_in = range_of(file), run.partition("-")[0]
        own = None if left is None else ours.get(left.topic_partition)
        if left is None or own is None or not written_in.isdigit():
            continue
        generation = int(written_in)
        if generation < batch.generation or (generation == batch.generation and left.end <= own.start):
            try:
                store.delete_file(each.path)
            except FileNotFoundError:  # another program was faster
                continue


def _abort_left(store: Any, batch: Batch, options: Mapping[str, Any]) -> None:
    """Abort uploads of the batch's files, and of earlier files of its partitions. Their writers are dead, or have lost
    the partition."""
    from zkcoord.spark.sinks.uploads import abort_uploads

    ours = {each.topic_partition: each for each in batch.ranges}

    def ended(file: str) -> bool:
        left = range_of(file)
        own = None if left is None else ours.get(left.topic_partition)
        return left is not None and own is not None and (file == file_name(own) or left.end <= own.start)

    try:
        abort_uploads(store, options, ended)
    except Exception as error:  # whatever it is, the batch can be written
        log_event(logging.INFO, "uploads_left", f"uploads that were left cannot be removed: {error}", why=str(error))
