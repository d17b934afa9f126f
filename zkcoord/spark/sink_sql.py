"""A SQL table in which each record is once, through any DB-API driver.

    keyed      the table's key is (topic, partition, offset); a row that is there already is left, or replaced
    offsets    a second table has the next offset of each partition; rows and offsets are one transaction

A batch is one transaction of one connection, in the driver program; the rows stream through it. (Spark's JDBC writer
has a transaction for each task, only appends, and a task that Spark repeats appends twice: it can give neither.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import InvariantError, UnavailableError, UsageError
from zkcoord.spark.ranges import Batch, OffsetRange, check_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("topic", "partition", "offset")
NEXT = "next_offset"
CHUNK_ROWS = 1_000  # of one `executemany`
RACES_MAX = 10  # who is overtaken so often by others that write the same partitions is no straggler's victim
TRIES_MAX = 5  # of a batch whose rows a straggler writes at the same moment; each reads the DataFrame anew
CONFLICTS = ("23505", "40001", "40P01")  # SQLSTATE: a key that is there, a serialization failure, a deadlock


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
) -> int:
    """Write the batch's rows into `table` in one transaction; returns how many were sent.

    `df` has the columns topic, partition and offset; all its columns are written, in their order. `connect` makes a
    connection (DB-API 2.0) that does not commit by itself; it is closed afterwards.

    Without `offsets_table` the table has the key (topic, partition, offset), and rows that are there already are left
    alone. With it no key is needed: that table has topic, partition (its key) and next_offset, moves in the same
    transaction, and says which rows were written before. It belongs to `table` alone, and to one group.

    `statement` replaces the insertion, an upsert in your database's words for example; its parameters are the columns.
    `placeholder` is the driver's: "?", "%s", ":{}" (the number comes in the braces). `quote`, which names of columns
    are written with, is "`" for MySQL.

    A writer that is overtaken by another one of the same rows (a driver's IntegrityError, a serialization failure, a
    deadlock) tries again, and finds them there. UsageError for columns that lack; UnavailableError if others write the
    same partitions all the time; what the driver raises, with nothing written.
    """
    check_batch(batch)
    missing = sorted(set(KEY) - set(df.columns))
    if missing:
        raise UsageError(f"the DataFrame has no column {missing[0]!r}; keep topic, partition and offset for this sink")
    words = Words(placeholder, quote)
    with closing(connect()) as connection:
        if getattr(connection, "autocommit", False) is True:
            raise UsageError(
                "connect() makes a connection that commits by itself (autocommit): a batch is one transaction"
            )
        for left in reversed(range(TRIES_MAX)):
            try:
                if offsets_table is None:
                    firsts = {each.topic_partition: each.start for each in batch.ranges}
                    insertion = statement or words.insert_missing(table, df.columns)
                else:
                    firsts = _taken(connection, words, offsets_table, batch.ranges)
                    insertion = statement or words.insert(table, df.columns)
                repeated = () if statement or offsets_table else KEY
                sent = _send(connection, insertion, _rows(df, firsts, repeated)) if firsts else 0
                connection.commit()
                return sent
            except BaseException as error:
                connection.rollback()
                if not left or not _overtaken(error):
                    raise
    raise InvariantError("every try returns or raises")


def _overtaken(error: BaseException) -> bool:
    """Whether another writer of the same rows may be why; IntegrityError is all that some drivers tell (DB-API 2.0)."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is not None:
        return state in CONFLICTS
    return any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__)


class Words:
    """Statements, as ANSI SQL has them.

    >>> Words("?", '"').insert("clicks", ["topic", "n"])
    'INSERT INTO clicks ("topic", "n") VALUES (?, ?)'
    >>> Words(":{}", "").insert_missing("clicks", ["topic", "partition", "offset"])  # doctest: +NORMALIZE_WHITESPACE
    'INSERT INTO clicks (topic, partition, offset) SELECT :1, :2, :3
     WHERE NOT EXISTS (SELECT 1 FROM clicks WHERE topic = :4 AND partition = :5 AND offset = :6)'
    """

    def __init__(self, placeholder: str, quote: str) -> None:
        self._placeholder, self._quote = placeholder, quote

    def insert(self, table: str, columns: Sequence[str]) -> str:
        """A row, given its columns."""
        return f"INSERT INTO {table} ({self._names(columns)}) VALUES ({self._marks(1, len(columns))})"

    def insert_missing(self, table: str, columns: Sequence[str]) -> str:
        """A row unless its key is there, given its columns, and its key again."""
        count = len(columns)
        return (
            f"INSERT INTO {table} ({self._names(columns)}) SELECT {self._marks(1, count)} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {self._equal(KEY, count + 1)})"
        )

    def next_offset(self, table: str) -> str:
        """The next offset, given topic and partition."""
        return f"SELECT {self._names([NEXT])} FROM {table} WHERE {self._equal(KEY[:2], 1)}"

    def move(self, table: str) -> str:
        """Set the next offset, given the new one, topic, partition, and the old one."""
        return f"UPDATE {table} SET {self._equal([NEXT], 1)} WHERE {self._equal([*KEY[:2], NEXT], 2)}"

    def _names(self, columns: Iterable[str]) -> str:
        quote = self._quote
        return ", ".join(quote + (name.replace(quote, quote * 2) if quote else name) + quote for name in columns)

    def _marks(self, first: int, count: int) -> str:
        return ", ".join(self._placeholder.format(number) for number in range(first, first + count))

    def _equal(self, columns: Iterable[str], first: int) -> str:
        marks = ((name, self._placeholder.format(number)) for number, name in enumerate(columns, first))
        return " AND ".join(f"{self._names([name])} = {mark}" for name, mark in marks)


def _taken(connection: Any, words: Words, table: str, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
    """Move the offsets over these ranges and keep their rows locked; returns what is to be written, from where on.

    Whoever else writes the same partitions (a program that slept, and was replaced) either comes first, and then is
    seen here, or waits for this transaction, and then finds nothing left to write.
    """
    in_order = sorted(ranges)  # two writers lock the same rows in the same order
    for _ in range(RACES_MAX):
        try:
            firsts = _move_all(connection.cursor(), words, table, in_order)
        except Exception as error:
            if not _overtaken(error):
                raise
        else:
            if firsts is not None:
                return firsts
        connection.rollback()
    raise UnavailableError(f"others write the offsets in {table} all the time: is it one group's alone?")


def _move_all(cursor: Any, words: Words, table: str, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int] | None:
    """One try; None when somebody came in between."""
    firsts: dict[TopicPartition, int] = {}
    for each in ranges:
        cursor.execute(words.next_offset(table), (each.topic, each.partition))
        found = cursor.fetchone()
        if found is None:
            cursor.execute(words.insert(table, (*KEY[:2], NEXT)), (each.topic, each.partition, each.end))
            firsts[each.topic_partition] = each.start
        elif found[0] < each.end:
            cursor.execute(words.move(table), (each.end, each.topic, each.partition, found[0]))
            if cursor.rowcount != 1:
                return None
            firsts[each.topic_partition] = found[0]
    return firsts


def _rows(df: DataFrame, firsts: Mapping[TopicPartition, int], repeated: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows to write, one Spark task after the other, with the columns `repeated` again at their ends."""
    topic, partition, offset = (df.columns.index(name) for name in KEY)
    again = [df.columns.index(name) for name in repeated]
    for row in df.toLocalIterator():
        first = firsts.get(TopicPartition(row[topic], row[partition]))
        if first is not None and row[offset] >= first:
            yield (*row, *(row[index] for index in again))


def _send(connection: Any, statement: str, rows: Iterator[tuple[Any, ...]]) -> int:
    cursor, sent = connection.cursor(), 0
    while chunk := list(islice(rows, CHUNK_ROWS)):
        cursor.executemany(statement, chunk)
        sent += len(chunk)
    return sent
