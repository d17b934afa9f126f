"""Tells other rows of a batch from the same rows again.

A table that keeps ends knows which batches it has, and not which of their rows. So if a program writes two DataFrames
of one batch into it, the second one looks like a batch that comes again, and would be left out. Only this program can
tell them apart, and only while it has the `Batch` to which both calls belong: after its death nobody knows what the
first call was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Call(NamedTuple):
    """A call of a sink. `ends`: where the ends are that it moves."""

    table: str
    ends: object
    df: DataFrame
    transform: Any = None


_calls: dict[int, list[Call]] = {}  # of each `Batch` that this program has


def note_call(batch: Batch, call: Call, *, repeated: bool) -> None:
    """Note that the table has the batch, with the rows of this call. `repeated`: it had the batch before. Raises
    UsageError if that came from an earlier call with other rows."""
    if repeated:
        _refuse_other_rows(batch, call)
    if id(batch) not in _calls:
        finalize(batch, _calls.pop, id(batch), None)
    _calls.setdefault(id(batch), []).append(call)


def _refuse_other_rows(batch: Batch, call: Call) -> None:
    for each in _calls.get(id(batch), ()):
        if each.ends == call.ends and not _same(each, call):
            raise UsageError(
                f"batch {batch.id} was written before, by a call with other rows (into {each.table}), and ends are "
                f"kept for whole batches: the rows of this call (into {call.table}) would be lost. Write all rows of "
                "a batch in one call, as with unionByName, or give these a table, and ends, of their own. What the "
                "table has of this batch are the other call's rows alone: take them back before you go on. (If this "
                "call was to repeat that one: repeat it with the same objects as DataFrame and transform, since rand, "
                "uuid and your own functions make other rows each time that a DataFrame is built)"
            )


def _same(one: Call, other: Call) -> bool:
    """True for calls that write the same rows. Two plans are the same if Spark says so."""
    if one.table != other.table:
        return False
    if one.df is other.df and one.transform is other.transform:
        return True
    try:
        return bool(transformed(one.df, one.transform).sameSemantics(transformed(other.df, other.transform)))
    except Exception:  # the plans cannot be compared, so nothing is known
        return True


def transformed(df: DataFrame, transform: Any) -> DataFrame:
    """Return the rows to write. Raises UsageError if `transform` returns none."""
    rows: DataFrame | None = df if transform is None else transform(df)
    if rows is None:
        raise UsageError("transform returned None; it must return the DataFrame with the rows to write")
    return rows
