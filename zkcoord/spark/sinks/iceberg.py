"""An Iceberg table in which each record is once, on pyiceberg.

Executors write data files below the table's location. The driver program adds them in one snapshot. That snapshot's
summary contains the ends of all partitions of the branch, as JSON. A reader of the branch finds them in the newest
ancestor that has any. So the ends go back with a rollback, and follow a branch.

A catalog refuses a commit if the branch has moved since the table was loaded. pyiceberg would then put the snapshot,
with its ends, on top of the other snapshot. Here that is turned off, and the table is read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.ranges import Batch, check_batch
from zkcoord.spark.sinks.columns import check_columns, check_split, fields_of
from zkcoord.spark.sinks.data_files import DataFile, write_data_files
from zkcoord.spark.sinks.once import append_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENDS = "zkcoord.ends"  # in a snapshot's summary; as a property of the table: some snapshot had it
TOKEN = "zkcoord.commit"
RECENT = 50  # number of snapshots in which a snapshot with a lost answer is searched
# a commit that failed with one of these did not reach the catalog
MISTAKES = (TypeError, ValueError, AttributeError, LookupError)
NO_RETRIES = {"commit.retry.num-retries": "0"}
MEASURED = "write.metadata.metrics.column"
FORMAT_MIN = 2
PLAIN = {  # Iceberg's types -> Spark's
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
}


def write_iceberg(
    df: DataFrame,
    batch: Batch,
    table: str,
    *,
    catalog: Any,
    branch: str = "main",
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> int:
    """Append the batch's rows to an Iceberg table in one snapshot, each record once. Return the number of appended
    rows.

    `df` and `transform` are as for `write_delta`. `table` is the table's identifier. `catalog` is a catalog of
    pyiceberg, or its name (`load_catalog`). The table must exist. It must not be partitioned, or only by plain columns
    (`identity`).

    Raises UsageError, with nothing written, if the columns do not fit the table. Other writers may append at the same
    time. `rows_passed_over` and `rows_missing` warn as with `write_delta`. When snapshots expire, the newest one with
    ends must stay; otherwise UsageError is raised.
    """
    check_batch(batch)
    found = _catalog(catalog)
    return append_once(df, batch, table, lambda: _State(_loaded(found, table), branch), transform)


def iceberg_ends(table: str, *, catalog: Any, branch: str = "main") -> Callable[[], Callable[[str], int | None]]:
    """Return a value for `SparkConsumer(resume_from=...)`: how far `write_iceberg` has written this table.

    A table that this sink has not written moves nothing. Raises UsageError if the catalog has no such table.
    """
    found = _catalog(catalog)

    def read() -> Callable[[str], int | None]:
        try:
            return _State(_loaded(found, table), branch).end
        except (UsageError, *MISTAKES):
            raise
        except Exception as error:  # an error of the catalog, or of the connection to it
            raise UnavailableError(f"the table {table} cannot be read for its ends, try again: {error}") from error

    return read


def _catalog(given: Any) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise UsageError("an Iceberg table needs an extra package: pip install 'zkcoord[iceberg]'") from error
    found = load_catalog(given) if isinstance(given, str) else given
    if not hasattr(found, "load_table"):
        raise UsageError(f"catalog is {given!r}; give a catalog of pyiceberg, or the name of one")
    return found


def _loaded(catalog: Any, name: str) -> Any:
    """Return the table as it is now. Whatever its properties say, a commit is tried once, and the partition columns are
    measured, since pyiceberg takes a file's partition from the measurements.

    Raises UsageError for format version 1, which does not number snapshots: there it is impossible to see that one has
    expired.
    """
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(name)
    except NoSuchTableError as error:
        raise UsageError(f"the catalog has no table {name!r}; create it with the columns that are written") from error
    if table.metadata.format_version < FORMAT_MIN:
        raise UsageError(
            f"the table {name} has format version 1, in which nobody sees that snapshots with its ends have expired: "
            f"upgrade it (ALTER TABLE {name} SET TBLPROPERTIES ('format-version'='{FORMAT_MIN}'))"
        )
    _set(table, {**NO_RETRIES, **{f"{MEASURED}.{name}": "full" for name in _split(table)}})
    return table


def _set(table: Any, properties: Mapping[str, str]) -> None:
    """Let pyiceberg take the table for one with these properties, of which the catalog is told nothing."""
    told = {**table.metadata.properties, **properties}
    table.metadata = table.metadata.model_copy(update={"properties": told})


def _split(table: Any) -> list[str]:
    """Return the columns by which the table is partitioned."""
    return [table.schema().find_column_name(each.source_id) for each in table.spec().fields]


class _State:
    """A `once.Snapshot` of a branch of the table."""

    def __init__(self, table: Any, branch: str) -> None:
        self._table, self._branch = table, branch
        self._ends: dict[str, int] | None = None

    def end(self, name: str) -> int | None:
        """Return the end in the branch's newest summary that has ends."""
        if self._ends is None:
            self._ends = self._read_ends()
        return self._ends.get(name)

    def _read_ends(self) -> dict[str, int]:
        oldest = 0
        for number, summary in self._summaries():
            if ENDS in summary:
                return dict(json.loads(summary[ENDS]))
            oldest = number
        if oldest > 1 and ENDS in self._table.metadata.properties:  # the oldest was not the table's first
            raise UsageError(
                f"the snapshots of {self._name} that tell how far it is have expired: keep the newest that has "
                f"{ENDS!r} in its summary (history.expire.max-snapshot-age-ms), or write to another table"
            )
        return {}

    def _summaries(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield the numbers and summaries of the branch's snapshots, newest first. Expired ones are missing."""
        metadata = self._table.metadata
        reference = metadata.refs.get(self._branch)
        if reference is None and self._branch != "main":
            raise UsageError(f"the table {self._name} has no branch {self._branch!r}; create it first")
        at = None if reference is None else reference.snapshot_id
        while at is not None and (snapshot := metadata.snapshot_by_id(at)) is not None:
            yield snapshot.sequence_number or 0, snapshot.summary.additional_properties if snapshot.summary else {}
            at = snapshot.parent_snapshot_id

    @property
    def _name(self) -> str:
        return ".".join(self._table.name())

    def has(self, token: str) -> bool:
        """Look for the token in the last summaries."""
        return any(summary.get(TOKEN) == token for _, summary in islice(self._summaries(), RECENT))

    def rules(self) -> object:
        """Return the table's identity and branch, its columns, partitions, and folder."""
        table = self._table
        return table.metadata.table_uuid, self._branch, table.schema(), table.spec(), self._location

    def write(self, rows: DataFrame) -> Collection[DataFile]:
        """Write files with the table's columns."""
        schema = self._table.schema()
        wanted = {
            each.name: {"type": _type(each.field_type), "nullable": not each.required}  # in Spark's terms
            for each in schema.fields
        }
        given = fields_of(rows.schema.json())
        check_columns(given, wanted, self._name)
        for name in given:
            if given[name]["nullable"] and not wanted[name]["nullable"]:
                raise UsageError(
                    f"the column {name!r} of the rows can be null, and that of the table {self._name} cannot: write an "
                    f"expression that is never null, as coalesce({name}, ...)"
                )
        split = []
        for field in self._table.spec().fields:
            column = schema.find_column_name(field.source_id)
            if str(field.transform) != "identity":
                raise UsageError(
                    f"the table {self._name} is partitioned by {field.transform}({column}); this sink writes tables "
                    "that are partitioned by plain columns, or not at all"
                )
            split.append(column)
        check_split(given, split, self._name)
        plan = {
            "uri": self._location.removeprefix("file://").removeprefix("file:"),
            "library": "pyiceberg",
            "options": dict(self._table.io.properties),
            "partition_by": split,
            "kept": True,
            "required": (),
        }
        return write_data_files(rows, plan)

    @property
    def _location(self) -> str:
        """The folder of the data files, as the table writes it."""
        return str(self._table.location()).rstrip("/") + "/data"

    def commit(self, files: Collection[DataFile], ends: Mapping[str, int], token: str) -> None:
        """Commit one snapshot of the branch."""
        summary = {ENDS: json.dumps({**(self._ends or {}), **ends}, sort_keys=True), TOKEN: token}
        try:
            change = self._change(files, summary)
        except OverflowError:  # a time or a day has a year that Python does not have: no bounds are told
            others = set(self._table.schema().column_names) - set(_split(self._table))
            _set(self._table, {f"{MEASURED}.{name}": "counts" for name in others})
            change = self._change(files, summary)
        change.commit_transaction()

    def _change(self, files: Collection[DataFile], summary: Mapping[str, str]) -> Any:
        """Return a transaction that adds the files."""
        change = self._table.transaction()
        if ENDS not in self._table.metadata.properties:
            change.set_properties(**{ENDS: "in the snapshots' summaries"})
        change.add_files(
            [f"{self._location}/{each.path}" for each in files],
            snapshot_properties=summary,
            check_duplicate_files=False,
            branch=self._branch,
        )
        return change

    def unsure(self, error: Exception) -> bool:
        """True for every answer of a catalog or of the connection to it. (The libraries underneath have errors of their
        own.)"""
        return not isinstance(error, MISTAKES)


def _type(kind: Any) -> Any:
    """Return an Iceberg type in Spark's JSON form."""
    if kind.is_struct:
        fields = [{"name": each.name, "type": _type(each.field_type)} for each in kind.fields]
        return {"type": "struct", "fields": fields}
    if hasattr(kind, "element_type"):
        return {"type": "array", "elementType": _type(kind.element_type)}
    if hasattr(kind, "value_type"):
        return {"type": "map", "keyType": _type(kind.key_type), "valueType": _type(kind.value_type)}
    text = str(kind)
    return text.replace(" ", "") if text.startswith("decimal") else PLAIN.get(text, f"Iceberg's {text}")
