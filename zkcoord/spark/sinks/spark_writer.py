"""Uses Spark's own writer below a path that driver and executors share. It needs no Python worker."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from zkcoord.errors import UsageError
from zkcoord.spark.jobs import is_connect
from zkcoord.spark.meter import figures

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame, Observation, SparkSession

# With version 1 the folder has only files of attempts that Spark has accepted, whatever the cluster's own setting is.
# With version 2 an attempt that is lost after its end leaves files, and the next attempt may have other rows or names.
WRITER_OPTIONS = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
ONE_FILE = {"maxRecordsPerFile": "0"}  # of a task, whatever the session's own setting is
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
# Spark's default is INT96, which has no statistics, and which Iceberg does not support
MICROSECONDS = "TIMESTAMP_MICROS"

FOOTERS_MAX = 8  # footers read at the same time
TOLD_TRIES, TOLD_WAIT_S = 500, 0.002  # one second, if Spark does not report the number of rows
ROWS = re.compile(r"SQLPlanMetric\(number of output rows,(\d+),")

_lock = threading.Lock()
_holders: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()


def write_drafts(rows: DataFrame, drafts: Path, split: Sequence[str] | None = None) -> dict[Path, FileMetaData]:
    """Write the rows as Parquet files below `drafts`, to which nobody else writes. Return the files, sorted, with their
    footers.

    `split`: columns that are not written; each of their values has a folder (`NAME=VALUE`). None: a task writes one
    file. Raises UsageError if the driver does not see all rows that the executors wrote.
    """
    with counted(rows) as (rows, count):
        writer = rows.write.mode("overwrite").options(**WRITER_OPTIONS, **(ONE_FILE if split is None else {}))
        if split:
            writer = writer.partitionBy(*split)
        writer.parquet(f"file://{drafts}")  # Hadoop takes a path as it is, without escapes
    found = footers_of(drafts, "".join(f"{name}=*/" for name in split or ()))
    written, seen = count(), sum(each.num_rows for each in found.values())
    if seen != written if written is not None else not found and not rows.isEmpty():
        raise UsageError(
            f"this program sees {seen} rows of {written or 'those'} that Spark's executors wrote into {drafts.parent}: "
            "give a path that this program and all executors share, or the URI of a store"
        )
    return found


def footers_of(folder: Path, below: str = "") -> dict[Path, FileMetaData]:
    """Return the Parquet files in a folder, or in its subfolders that match `below`, sorted, with their footers."""
    from pyarrow import parquet

    files = sorted(folder.glob(f"{below}*.parquet"))
    with ThreadPoolExecutor(FOOTERS_MAX) as threads:
        return dict(zip(files, threads.map(parquet.read_metadata, files), strict=True))


@contextmanager
def counted(rows: DataFrame) -> Iterator[tuple[DataFrame, Callable[[], int | None]]]:
    """Return the rows, and a function that returns how many were written in this block; None if Spark does not tell.

    In a classic session Spark's writer counts the rows. A remote session observes them, which takes about 7 % of a
    large batch's time.
    """
    session = rows.sparkSession
    if is_connect(session):
        from pyspark.sql import Observation, functions

        seen = Observation()
        yield rows.observe(seen, functions.expr("count(1) AS rows")), partial(_observed, seen)
        return
    tag = f"zkcoord-{uuid.uuid4().hex}"
    session.sparkContext.addJobTag(tag)
    try:
        yield rows, partial(_written, session, tag)
    finally:
        session.sparkContext.removeJobTag(tag)


def _observed(seen: Observation) -> int | None:
    found = figures(seen, ("rows",))
    return int(found["rows"]) if found else None


def _written(session: SparkSession, tag: str) -> int | None:
    """Return the count of these jobs' writer. Spark reports it shortly after the write has returned."""
    context: Any = session.sparkContext._jsc.sc()  # type: ignore[union-attr,unused-ignore]
    queries: Any = session._jsparkSession.sharedState().statusStore()
    for _ in range(TOLD_TRIES):
        # it raises while the count is not reported; another Spark version may have other internals
        with suppress(Exception):
            job = max(context.statusTracker().getJobIdsForTag(tag))
            query = context.statusStore().jobWithAssociatedSql(job)._2().get()
            writer = queries.planGraph(query).allNodes().head().metrics().mkString("\n")
            figure = ROWS.search(writer)
            told = figure and re.search(
                rf"^{figure[1]} -> ([\d,]+)$", queries.executionMetrics(query).mkString("\n"), re.MULTILINE
            )
            if told:
                return int(told[1].replace(",", ""))
        threading.Event().wait(TOLD_WAIT_S)
    return None


@contextmanager
def times_in_microseconds(rows: DataFrame) -> Iterator[None]:
    """Let the session write timestamps as tables have them. Afterwards the setting is restored.

    Concurrent writers of one session share the setting.
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
