"""One transaction of `write_sql`: the statements, offsets and rows. It runs in the driver or in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.errors import InvariantError, UnavailableError, UsageError
from zkcoord.spark.ranges import Batch, OffsetRange, same_topic

KEY = ("topic", "partition", "offset")
NEXT = "next_offset"
INCARNATION = "incarnation"
CHUNK_ROWS = 1_000  # rows in one `executemany`
RACES_MAX = 10  # attempts of a transaction: a straggler is faster once or twice, not so often
TRIES_MAX = 5  # attempts of a transaction whose rows a straggler writes at the same time; each reads the rows again
# SQLSTATE: an existing key (MySQL: any broken constraint), a serialization failure, a deadlock
CONFLICTS = ("23505", "23000", "40001", "40P01")


class RowSource(Protocol):
    """The methods of a DataFrame that are used here."""

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        ...

    def toLocalIterator(self) -> Iterator[Any]:
        """Its rows, from the beginning at each call."""
        ...


class Wrote(NamedTuple):
    """The number of rows that were sent; and for people, which existed already, if known, and which the table of
    offsets lacks before them."""

    sent: int
    passed_over: str
    skipped: str = ""

    @property
    def repeated(self) -> bool:
        """True if rows existed already, and none was sent."""
        return bool(self.passed_over and not self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table to write to. `numbered`: the keyed table, or the table of offsets, has the column `incarnation`."""

    words: Words
    table: str
    offsets_table: str | None
    statement: str | None
    numbered: bool

    def write_at_once(self, connection: Any, df: RowSource, batch: Batch) -> Wrote:
        """Write in one transaction, and repeat it if another writer of the same rows comes in between. Returns the
        result of `write`.

        After an error nothing is written.
        """
        for left in reversed(range(TRIES_MAX)):
            try:
                found = self.write(connection, df, batch)
                connection.commit()
            except BaseException as error:
                connection.rollback()
                if not left or not _overtaken(error):
                    raise
            else:
                return found
        raise InvariantError("every try returns or raises")

    def write(self, connection: Any, df: RowSource, batch: Batch) -> Wrote:
        """Send the rows, and move the offsets."""
        if self.offsets_table is not None:
            taken = _taken(connection, self.words, self.offsets_table, batch.ranges, numbered=self.numbered)
            insertion = self.statement or self.words.insert(self.table, df.columns)
            sent, _ = _send(connection, insertion, _rows(df, taken.firsts, {}, ())) if taken.firsts else (0, 0)
            return Wrote(sent, "; ".join(taken.passed_over), "; ".join(taken.skipped))
        firsts = {each.topic_partition: each.start for each in batch.ranges}
        fills = self.numbered and INCARNATION not in df.columns
        numbers = {each.topic_partition: each.incarnation or 1 for each in batch.ranges} if fills else {}
        columns = [*df.columns, *([INCARNATION] if fills else [])]
        key = [*KEY, *([INCARNATION] if INCARNATION in columns else [])]
        insertion = self.statement or self.words.insert_missing(self.table, columns, key)
        repeated = () if self.statement else [columns.index(name) for name in key]
        sent, changed = _send(connection, insertion, _rows(df, firsts, numbers, repeated))
        there = 0 if self.statement or changed is None else sent - changed
        return Wrote(sent, f"{there} of {sent} rows for {self.table}" if there > 0 else "")


def _overtaken(error: BaseException) -> bool:
    """True if another writer of the same rows may be the reason. Some drivers report only IntegrityError (DB-API
    2.0)."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is not None:
        return state in CONFLICTS
    return any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__)


class Words:
    """Statements in ANSI SQL.

    >>> Words("?", '"').insert("clicks", ["topic", "n"])
    'INSERT INTO clicks ("topic", "n") VALUES (?, ?)'
    >>> Words(":{}", "").insert_missing("clicks", KEY, KEY)  # doctest: +NORMALIZE_WHITESPACE
    'INSERT INTO clicks (topic, partition, offset) SELECT :1, :2, :3
     WHERE NOT EXISTS (SELECT 1 FROM clicks WHERE topic = :4 AND partition = :5 AND offset = :6)'
    """

    def __init__(self, placeholder: str, quote: str) -> None:
        self._placeholder, self._quote = placeholder, quote

    def insert(self, table: str, columns: Sequence[str]) -> str:
        """Insert a row. Parameters: its columns."""
        return f"INSERT INTO {table} ({self._names(columns)}) VALUES ({self._marks(1, len(columns))})"

    def insert_missing(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        """Insert a row unless its key exists. Parameters: its columns, then its key."""
        count = len(columns)
        return (
            f"INSERT INTO {table} ({self._names(columns)}) SELECT {self._marks(1, count)} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {self._equal(key, count + 1)})"
        )

    def read(self, table: str, columns: Sequence[str]) -> str:
        """Read these columns of a partition. Parameters: topic and partition."""
        return f"SELECT {self._names(columns)} FROM {table} WHERE {self._equal(KEY[:2], 1)}"

    def move(self, table: str, columns: Sequence[str]) -> str:
        """Set these columns of a partition. Parameters: the new values, topic, partition, and the old values."""
        new = ", ".join(self._pairs(columns, 1))
        return f"UPDATE {table} SET {new} WHERE {self._equal([*KEY[:2], *columns], len(columns) + 1)}"

    def _names(self, columns: Iterable[str]) -> str:
        quote = self._quote
        return ", ".join(quote + (name.replace(quote, quote * 2) if quote else name) + quote for name in columns)

    def _marks(self, first: int, count: int) -> str:
        return ", ".join(self._placeholder.format(number) for number in range(first, first + count))

    def _equal(self, columns: Iterable[str], first: int) -> str:
        return " AND ".join(self._pairs(columns, first))

    def _pairs(self, columns: Iterable[str], first: int) -> list[str]:
        marks = ((name, self._placeholder.format(number)) for number, name in enumerate(columns, first))
        return [f"{self._names([name])} = {mark}" for name, mark in marks]


@dataclass(frozen=True, slots=True)
class _Taken:
    """The partitions to write, with the first offset of each; and, for people, what was written before, and what is
    missing before them."""

    firsts: dict[TopicPartition, int]
    passed_over: tuple[str, ...]
    skipped: tuple[str, ...]


def _taken(connection: Any, words: Words, table: str, ranges: Sequence[OffsetRange], *, numbered: bool) -> _Taken:
    """Move the offsets over these ranges and lock their rows. Return what to write, with the first offsets.

    If another writer of the same partitions (a program that slept, and was replaced) came first, that is detected here.
    If not, it waits for this transaction, and then finds nothing left to write.
    """
    in_order = sorted(ranges)  # two writers lock the same rows in the same order
    for _ in range(RACES_MAX):
        try:
            taken = _move_all(connection.cursor(), words, table, in_order, numbered=numbered)
        except Exception as error:
            if not _overtaken(error):
                raise
        else:
            if taken is not None:
                return taken
        connection.rollback()
    raise UnavailableError(f"others write the offsets in {table} all the time: is it one group's alone?")


def _move_all(cursor: Any, words: Words, table: str, ranges: Sequence[OffsetRange], *, numbered: bool) -> _Taken | None:
    """Try once. None: another writer came in between."""
    columns = (NEXT, INCARNATION) if numbered else (NEXT,)
    firsts: dict[TopicPartition, int] = {}
    passed_over, skipped = [], []
    for each in ranges:
        place = each.topic, each.partition
        cursor.execute(words.read(table, columns), place)
        found = cursor.fetchone()
        if found is None:
            new = (each.end, each.incarnation or 1)[: len(columns)]
            cursor.execute(words.insert(table, (*KEY[:2], *columns)), (*place, *new))
            firsts[each.topic_partition] = each.start
            continue
        first, new = _continued(table, each, *found)
        if first > each.start:
            passed_over.append(f"offsets of {each.topic_partition} from {each.start} to {min(first, each.end)}")
        if first < each.start:
            skipped.append(f"offsets of {each.topic_partition} from {first} to {each.start}")
        if first < each.end:
            cursor.execute(words.move(table, columns), (*new[: len(columns)], *place, *found))
            if cursor.rowcount != 1:
                return None
            firsts[each.topic_partition] = first
    return _Taken(firsts, tuple(passed_over), tuple(skipped))


def _continued(table: str, each: OffsetRange, next_offset: int, incarnation: int = 0) -> tuple[int, tuple[int, int]]:
    """Return the first offset of a range to write, and the partition's next offset and incarnation after it."""
    if same_topic(each.incarnation, incarnation):
        return next_offset, (each.end, max(each.incarnation, incarnation))
    if each.incarnation < incarnation:
        raise UsageError(
            f"{table} has incarnation {incarnation} of {each.topic_partition}, and this batch is of "
            f"incarnation {each.incarnation}: either this program slept while the topic was created again "
            f"(then its batch is over), or {table} is that of another group, or of one that was deleted: remove its "
            f"lines of topic {each.topic!r}"
        )
    return each.start, (each.end, each.incarnation)


def _rows(
    df: RowSource,
    firsts: Mapping[TopicPartition, int],
    numbers: Mapping[TopicPartition, int],
    repeated: Sequence[int],
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows to write, one Spark task after the other.

    With `numbers` a row's columns are followed by the number of its partition; then the values at the indices
    `repeated` follow once more.
    """
    topic, partition, offset = (df.columns.index(name) for name in KEY)
    for row in df.toLocalIterator():
        at = TopicPartition(row[topic], row[partition])
        first = firsts.get(at)
        if first is not None and row[offset] >= first:
            values = (*row, numbers[at]) if numbers else tuple(row)
            yield (*values, *(values[index] for index in repeated))


def _send(connection: Any, insertion: str, rows: Iterator[tuple[Any, ...]]) -> tuple[int, int | None]:
    """Send the rows. Return their number, and how many the database has accepted (None if its driver does not tell)."""
    cursor = connection.cursor()
    sent = 0
    changed: int | None = 0
    while chunk := list(islice(rows, CHUNK_ROWS)):
        cursor.executemany(insertion, chunk)
        sent += len(chunk)
        changed = changed + cursor.rowcount if changed is not None and cursor.rowcount >= 0 else None
    return sent, changed
