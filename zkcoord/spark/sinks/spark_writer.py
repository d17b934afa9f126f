"""Spark's own writer, below a path that driver and executors share. It needs no Python worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from zkcoord.errors import UsageError
from zkcoord.spark.meter import figures

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame, SparkSession

# Version 1 has only files of those attempts in the folder that Spark has taken, whatever the cluster's own setting is.
# With 2 an attempt that is lost behind its end leaves files, and the next one may have other rows, or other names.
WRITER_OPTIONS = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
MICROSECONDS = "TIMESTAMP_MICROS"  # Spark's default is INT96, which has no statistics, and which Iceberg does not know

FOOTERS_MAX = 8  # read at a time
TOLD_TRIES = 500  # a second, if Spark does not tell how many rows there were

_lock = Lock()
_holders: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()


def write_drafts(rows: DataFrame, drafts: Path, split: Sequence[str] = ()) -> dict[Path, FileMetaData]:
    """Write the rows as Parquet files below `drafts`, which nobody else writes to; return the files, sorted, with their
    footers.

    `split`: columns that are not written; each of their values has a folder (`NAME=VALUE`). UsageError if the driver
    does not see all rows that the executors wrote.
    """
    rows, count = counted(rows)
    writer = rows.write.mode("overwrite").options(**WRITER_OPTIONS)
    if split:
        writer = writer.partitionBy(*split)
    writer.parquet(f"file://{drafts}")  # Hadoop takes a path as it is, without escapes
    found = footers_of(drafts, "".join(f"{name}=*/" for name in split))
    written, seen = count(), sum(each.num_rows for each in found.values())
    if seen != written if written is not None else not found and not rows.isEmpty():
        raise UsageError(
            f"this program sees {seen} rows of {written or 'those'} that Spark's executors wrote into {drafts.parent}: "
            "give a path that this program and all executors share, or the URI of a store"
        )
    return found


def footers_of(folder: Path, below: str = "") -> dict[Path, FileMetaData]:
    """Return the Parquet files in a folder, or in those within it that match `below`; sorted, with their footers."""
    from pyarrow import parquet

    files = sorted(folder.glob(f"{below}*.parquet"))
    with ThreadPoolExecutor(FOOTERS_MAX) as threads:
        return dict(zip(files, threads.map(parquet.read_metadata, files), strict=True))


def counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int | None]]:
    """Return the rows, and what tells how many were written; None if Spark does not tell."""
    from pyspark.sql import Observation, functions

    seen = Observation()
    watched = rows.observe(seen, functions.expr("count(1) AS rows"))

    def count() -> int | None:
        found = figures(seen, ("rows",), TOLD_TRIES)
        return int(found["rows"]) if found else None

    return watched, count


@contextmanager
def times_in_microseconds(rows: DataFrame) -> Iterator[None]:
    """Let the session write timestamps as tables have them; afterwards it is as it was.

    Writers of one session at the same time share the setting.
    """
    if '"timestamp"' not in rows.schema.json():
        yield
        return
    session = rows.sparkSession
    with _lock:
        count, before = _holders.get(session, (0, ""))
        if not count:
            before = session.conf.get(TIMESTAMPS)
            session.conf.set(TIMESTAMPS, MICROSECONDS)
        _holders[session] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            count, before = _holders.pop(session)
            if count > 1:
                _holders[session] = count - 1, before
            else:
                session.conf.set(TIMESTAMPS, before)
