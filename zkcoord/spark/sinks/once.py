"""Appends to a table that records, with each transaction, how far it has each partition.

    read the table's ends ──► write the rows beyond them ──► commit files and new ends together, unless the ends moved
            ▲                                                        │
            └──────────── refused, or the answer was lost ───────────┘

If a partition's end is at or beyond a range's end, the writer leaves the range out. If the table has a part of a range,
the writer leaves out the rows that are there. So nothing is written twice, whether a batch is repeated, divided among
several heirs or cut anew, or a program slept. No key is needed: rows and ends are one transaction of the table.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch, OffsetRange, check_batch, is_later
from zkcoord.spark.sinks.calls import Call, note_call, transformed
from zkcoord.spark.sinks.data_files import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("topic", "partition", "offset")
TRIES_MAX = 10  # writers of the same partitions at the same time are few, and each costs one try
AGAIN = (
    "If somebody set the group's offsets back, or a consumer did not announce, they are the same records. If the group "
    "was deleted, and its topic created again, they are lost to this table: give the sink another one"
)


class Snapshot(Protocol):
    """One version of a table."""

    def end(self, name: str) -> int | None:
        """Return the offset up to which the table has this partition (`partition_name`)."""
        ...

    def has(self, token: str) -> bool:
        """True if a recent transaction carries this token."""
        ...

    def rules(self) -> object:
        """Return the rules for writing files. Files of a snapshot with the same rules also fit this one."""
        ...

    def write(self, rows: DataFrame) -> Collection[DataFile]:
        """Write data files that no transaction names yet. Raises UsageError if the rows do not fit the table; then
        nothing is written."""
        ...

    def commit(self, files: Collection[DataFile], ends: Mapping[str, int], token: str) -> None:
        """Add the files, and move the ends. Raises an error if another transaction has moved one of them since this
        snapshot."""
        ...

    def unsure(self, error: Exception) -> bool:
        """True if a commit that failed with this error may have happened, or may be repeated on a newer snapshot."""
        ...


class Missing(NamedTuple):
    """The part of a batch that is not in the table. `firsts` holds its beginning in each partition."""

    firsts: Mapping[TopicPartition, int]
    passed_over: tuple[str, ...]
    skipped: tuple[str, ...]  # the offsets between the table's end and the batch


def partition_name(group: str, each: OffsetRange) -> str:
    """Return the name under which a table keeps the end of a partition.

    >>> partition_name("etl", OffsetRange("clicks", 3, 0, 9)), partition_name("etl", OffsetRange("clicks", 3, 0, 9, 2))
    ('zkcoord/etl/clicks-3', 'zkcoord/etl/clicks-3.2')
    """
    again = f".{each.incarnation}" if is_later(each) else ""
    return f"zkcoord/{group}/{each.topic}-{each.partition}{again}"


def append_once(
    df: DataFrame, batch: Batch, table: str, open_table: Callable[[], Snapshot], transform: Any = None
) -> int:
    """Append the rows of the batch that the table lacks, in one transaction. Return their number."""
    check_batch(batch)
    if not batch.group:
        raise UsageError(
            "the batch does not name its group, under which the table keeps its ends: the query's checkpoint is of an "
            "earlier release; give dataclasses.replace(batch, group=...)"
        )
    if transform is not None and not callable(transform):
        raise UsageError(f"transform is {transform!r}; it must be a function of a DataFrame that returns one")
    lacking = sorted(set(KEY) - set(df.columns))
    if lacking:
        raise UsageError(
            f"the DataFrame has no column {lacking[0]!r}, by which the rows of a range are known; give the batch's own "
            "DataFrame, and what is to be written of it as transform"
        )
    rows, missing, rules = _append(df, batch, open_table, transform)
    note_call(batch, Call(table, (table, rules), df, transform), repeated=not missing.firsts)
    _tell(batch, table, missing)
    return rows


def _append(
    df: DataFrame, batch: Batch, open_table: Callable[[], Snapshot], transform: Any
) -> tuple[int, Missing, object]:
    """Append the rows that the table lacks. Return their number, what was missing, and the table's rules."""
    token = uuid.uuid4().hex
    files: Collection[DataFile] = ()
    missing = Missing({}, (), ())
    written: Mapping[TopicPartition, int] = {}
    rules: object = None
    for left in reversed(range(TRIES_MAX)):
        snapshot = open_table()
        if missing.firsts and snapshot.has(token):  # the answer was lost
            break
        missing = missing_of(batch.group, batch.ranges, snapshot)
        if not missing.firsts:
            return 0, missing, snapshot.rules()
        if (missing.firsts, snapshot.rules()) != (written, rules):
            files = snapshot.write(_wanted(df, batch.ranges, missing.firsts, transform))
            written, rules = missing.firsts, snapshot.rules()
        ends = {partition_name(batch.group, each): each.end for each in batch.ranges if each.topic_partition in written}
        try:
            snapshot.commit(files, ends, token)
            break
        except Exception as error:
            if not left or not snapshot.unsure(error):
                raise
    return sum(each.rows for each in files), missing, rules


def missing_of(group: str, ranges: Iterable[OffsetRange], snapshot: Snapshot) -> Missing:
    """Compare the ranges with the table's ends."""
    firsts: dict[TopicPartition, int] = {}
    passed_over, skipped = [], []
    for each in ranges:
        end = snapshot.end(partition_name(group, each))
        first = each.start if end is None else max(end, each.start)
        if end is not None and end > each.start:
            passed_over.append(f"offsets of {each.topic_partition} from {each.start} to {min(end, each.end)}")
        if end is not None and end < each.start:
            skipped.append(f"offsets of {each.topic_partition} from {end} to {each.start}")
        if first < each.end:
            firsts[each.topic_partition] = first
    return Missing(firsts, tuple(passed_over), tuple(skipped))


def _wanted(
    df: DataFrame, ranges: Iterable[OffsetRange], firsts: Mapping[TopicPartition, int], transform: Any
) -> DataFrame:
    """Return the rows from these offsets on, in the form in which they are written. If the table has nothing of the
    batch, it is not filtered."""
    if any(firsts.get(each.topic_partition) != each.start for each in ranges):  # names of topics need no escapes
        lines = [
            f"(`topic` = '{each.topic}' AND `partition` = {each.partition} AND `offset` >= {first})"
            for each, first in sorted(firsts.items())
        ]
        df = df.where(" OR ".join(lines))
    return transformed(df, transform)


def _tell(batch: Batch, table: str, missing: Missing) -> None:
    if missing.passed_over and not batch.replayed:
        text = f"{'; '.join(missing.passed_over)}: they are in the table. {AGAIN}"
        log_event(logging.WARNING, "rows_passed_over", text, table=table, batch=batch.id)
    if missing.skipped:
        tell_missing(batch, table, "; ".join(missing.skipped))


def tell_missing(batch: Batch, table: str, skipped: str) -> None:
    """Warn of offsets before a batch that its table lacks."""
    text = (
        f"{skipped} are not in the table, and were not read: it was restored to an earlier version, or the group's "
        "offsets were set forward, or these records have left the log, or nobody wrote their batches. To read them, "
        "set the group's offsets to where the table ends"
    )
    log_event(logging.WARNING, "rows_missing", text, table=table, batch=batch.id)
