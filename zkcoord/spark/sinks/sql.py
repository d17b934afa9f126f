"""A SQL table in which each record is once, through any DB-API driver.

    keyed      the table's key is (topic, partition, offset); a row that is there already is left, or replaced
    offsets    a second table has the next offset of each partition; rows and offsets are one transaction

The column `incarnation`, in the keyed table or in the table of offsets, distinguishes a topic that was created again
from the earlier one (`OffsetRange`). A table without it can hold only the first one.

A batch is one transaction of one connection in the driver program, through which the rows stream. With `sql_tasks` each
range is a transaction, in a task. (Spark's JDBC writer cannot do either: it has a transaction for each task, only
appends, and appends twice when Spark repeats a task.)
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
from zkcoord.spark.sinks.calls import Call, note_call
from zkcoord.spark.sinks.once import tell_missing
from zkcoord.spark.sinks.sql_target import INCARNATION, KEY, Target, Words, Wrote
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
    """Write the batch's rows into `table`, in one transaction or in `tasks`. Return the number of rows sent.

    `df` has the columns topic, partition and offset. All its columns are written, in their order. `connect` opens a
    connection (DB-API 2.0) that does not commit by itself (not every driver tells that); it is closed afterwards.

    Without `offsets_table` the table must have the key (topic, partition, offset), and existing rows stay as they are.
    With `offsets_table` no key is needed: that table has topic, partition (its key) and next_offset, is updated in the
    same transaction, and shows which rows were written before. It belongs only to `table`, and to one group.

    The keyed table, or `offsets_table`, also has the column `incarnation`, a whole number, which this function fills.
    In the keyed table it belongs to the key. A table of an earlier release without it can be used until a topic is
    created again.

    `statement` replaces the insertion, for example by your database's upsert. Its parameters are the columns, with
    `incarnation` last if the keyed table has it. `placeholder` is the driver's: "?", "%s", ":{}" (the number replaces
    the braces). `quote` is put around names of columns; for MySQL it is "`".

    With `tasks`, that many tasks write at once, each over a connection of its own, and each range is a transaction.
    `connect` is passed to the workers, which need the database's driver. There a time has its zone, and bytes are
    `bytes`. If a worker dies after it has committed a range, its task runs again, and the number lacks that range.

    If another writer of the same rows is faster (IntegrityError, a serialization failure, a deadlock), this writer
    tries again, and finds them written. Raises UsageError for missing columns, and for an earlier incarnation of a
    topic than the table has. Raises UnavailableError if others keep writing the same partitions. An error of the driver
    is raised, with nothing written of its transaction. `rows_passed_over` warns of rows that exist although the batch
    brings them for the first time, and `rows_missing` of one that begins after its offsets there.
    """
    check_batch(batch)
    given_number("tasks", tasks)
    _check_connect(connect)
    missing = sorted(set(KEY) - set(df.columns))
    if missing:
        raise UsageError(f"the DataFrame has no column {missing[0]!r}; keep topic, partition and offset for this sink")
    with closing(connect()) as connection:
        numbered = _has_incarnations(connection, offsets_table or table)
        _refuse_autocommit(connection)
        if not numbered and (offsets_table is not None or INCARNATION not in df.columns):
            _refuse_later(batch, table, offsets_table)
        words = Words(placeholder, quote)
        target = Target(words=words, table=table, offsets_table=offsets_table, statement=statement, numbered=numbered)
        if tasks:
            wrote = write_in_tasks(target, connection, df, batch, connect=connect, tasks=tasks)
        else:
            wrote = target.write_at_once(connection, df, batch)
        if offsets_table is not None:
            note_call(batch, Call(table, (offsets_table, connect), df), repeated=wrote.repeated)
        _tell(batch, table, wrote)
        return wrote.sent


def _tell(batch: Batch, table: str, wrote: Wrote) -> None:
    if wrote.passed_over and not batch.replayed:
        text = f"{wrote.passed_over}: they were written before. {AGAIN}"
        log_event(logging.WARNING, "rows_passed_over", text, table=table, batch=batch.id)
    if wrote.skipped:
        tell_missing(batch, table, wrote.skipped)


def _check_connect(connect: object) -> None:
    if not callable(connect) or hasattr(connect, "cursor"):  # a text may contain a password
        raise UsageError(f"connect is a {type(connect).__name__}; give a function that opens a connection (DB-API 2.0)")


def _refuse_autocommit(connection: Any) -> None:
    """Raise UsageError if the driver tells that each statement is a transaction. Call it after a statement.

    DB-API 2.0 has no question for this, and no driver can be tried without leaving rows. So each is asked in its own
    way, and one that has no such way is believed.
    """
    told = getattr(connection, "autocommit", None)
    sqlite = getattr(connection, "isolation_level", "") is None and hasattr(connection, "in_transaction")
    asked = getattr(connection, "get_autocommit", bool)  # PyMySQL, mysqlclient: there `autocommit` is a function
    # Snowflake before version 5 has no `get_autocommit`; it keeps what the server says with each answer
    parameters = getattr(connection, "_session_parameters", {}) if callable(told) and asked is bool else {}
    snowflake = str(parameters.get("AUTOCOMMIT")).lower() == "true"
    if told is True or (sqlite and told is not False) or asked() is True or snowflake:
        raise UsageError("connect() makes a connection that commits by itself (autocommit): a batch is one transaction")


def _has_incarnations(connection: Any, table: str) -> bool:
    """True if the table has the column `incarnation`."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
        found = any(column[0].lower() == INCARNATION for column in cursor.description)
    connection.rollback()
    return found


def _refuse_later(batch: Batch, table: str, offsets_table: str | None) -> None:
    """Raises UsageError for a topic that may have been created again: this table cannot distinguish its offsets from
    the earlier ones."""
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
