"""A SQL table in which each record is once, through any DB-API driver.

    keyed      the table's key is (topic, partition, offset); a row that is there already is left, or replaced
    offsets    a second table has the next offset of each partition; rows and offsets are one transaction

The column `incarnation`, of the keyed table or of the table of offsets, tells a topic that was created again from the
one before (`OffsetRange`). A table without it holds the first one only.

A batch is one transaction of one connection, in the driver program, and the rows stream through it; or each range is
one, in a task (`sql_tasks`). (Spark's JDBC writer has a transaction for each task, only appends, and a task that Spark
repeats appends twice: it can give neither.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from zkcoord.core.given import given_number
from zkcoord.errors import UsageError
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch, check_batch, is_later
from zkcoord.spark.sinks.sql_target import INCARNATION, KEY, Target, Words
from zkcoord.spark.sinks.sql_tasks import write_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AGAIN = (
    "If somebody set the group's offsets back, or a consumer did not announce, they are the same records. If the group "
    "and the topic were deleted and created again, they are lost to this table: remove what it has of the topic, and "
    "set the group's offsets back"
)


def write_sql(
    df: DataFrame,
    batch: Batch,
    connect: Callable[[], Any],
    table: str,
    *,
    offsets_table: str | None = None,
    statement: str | None = None,
    placeholder: str = "?",
    quote: str = '"',
    tasks: int = 0,
) -> int:
    """Write the batch's rows into `table` in one transaction, or in `tasks`; return how many were sent.

    `df` has the columns topic, partition and offset; all its columns are written, in their order. `connect` makes a
    connection (DB-API 2.0) that does not commit by itself; it is closed afterwards.

    Without `offsets_table` the table has the key (topic, partition, offset), and rows that exist stay as they are. With
    `offsets_table` no key is needed: that table has topic, partition (its key) and next_offset, moves in the same
    transaction, and tells which rows were written before. It belongs to `table` alone, and to one group.

    The keyed table, or `offsets_table`, also has the column `incarnation`, a whole number, which is filled here; in the
    keyed table it belongs to the key. A table of an earlier release without it serves until a topic is created again.

    `statement` replaces the insertion, for example by an upsert in your database's words. Its parameters are the
    columns, with `incarnation` last if the keyed table has it. `placeholder` is the driver's: "?", "%s", ":{}" (the
    number comes in the braces). `quote` stands around names of columns; for MySQL it is "`".

    With `tasks`, so many tasks write at once, each over a connection of its own, and each range is a transaction.
    `connect` goes to the workers: they need the database's driver. A time comes there with its zone, bytes as `bytes`.

    A writer that another one of the same rows overtakes (IntegrityError, a serialization failure, a deadlock) tries
    again, and finds them written. UsageError for missing columns, and for an earlier incarnation of a topic than the
    table has. UnavailableError if others write the same partitions all the time. An error of the driver is raised with
    nothing written of its transaction. `rows_passed_over` warns of rows that exist though the batch brings them for the
    first time.
    """
    check_batch(batch)
    given_number("tasks", tasks)
    missing = sorted(set(KEY) - set(df.columns))
    if missing:
        raise UsageError(f"the DataFrame has no column {missing[0]!r}; keep topic, partition and offset for this sink")
    with closing(connect()) as connection:
        _refuse_autocommit(connection)
        numbered = _has_incarnations(connection, offsets_table or table)
        if not numbered and (offsets_table is not None or INCARNATION not in df.columns):
            _refuse_later(batch, table, offsets_table)
        words = Words(placeholder, quote)
        target = Target(words=words, table=table, offsets_table=offsets_table, statement=statement, numbered=numbered)
        if tasks:
            sent, passed_over = write_in_tasks(target, connection, df, batch, connect=connect, tasks=tasks)
        else:
            sent, passed_over = target.write_at_once(connection, df, batch)
        if passed_over and not batch.replayed:
            text = f"{passed_over}: they were written before. {AGAIN}"
            log_event(logging.WARNING, "rows_passed_over", text, table=table, batch=batch.id)
        return sent


def _refuse_autocommit(connection: Any) -> None:
    if getattr(connection, "autocommit", False) is True:
        raise UsageError("connect() makes a connection that commits by itself (autocommit): a batch is one transaction")


def _has_incarnations(connection: Any, table: str) -> bool:
    """True if the table has the column `incarnation`."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
        found = any(column[0].lower() == INCARNATION for column in cursor.description)
    connection.rollback()
    return found


def _refuse_later(batch: Batch, table: str, offsets_table: str | None) -> None:
    """UsageError for a topic that may have been created again: this table cannot tell its offsets from the earlier
    ones."""
    where = offsets_table or table
    for each in filter(is_later, batch.ranges):
        key = "" if offsets_table else " Then make (topic, incarnation, partition, offset) its key."
        raise UsageError(
            f"this is incarnation {each.incarnation} of topic {each.topic!r} in this group: it was created again, or "
            f"an earlier topic was deleted. {where} has no column {INCARNATION}: new records would be taken for old "
            f"ones. Add it: ALTER TABLE {where} ADD COLUMN {INCARNATION} INTEGER NOT NULL DEFAULT 1. "
            f"If what is there is of the present topic: "
            f"UPDATE {where} SET {INCARNATION} = {each.incarnation} WHERE topic = '{each.topic}'.{key}"
        )
