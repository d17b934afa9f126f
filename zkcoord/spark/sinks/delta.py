"""A Delta table in which each record is once, on delta-rs (`deltalake`).

Executors write data files below the table's path; the driver program commits them in one transaction of the table. That
transaction also carries an application transaction (`txn`) for each partition of the batch: its version is the range's
end. delta-rs refuses a commit if another one with the same application id came since the snapshot that it was decided
from; so of two programs that write the same partition at once, one reads the table again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch, check_batch
from zkcoord.spark.sinks.columns import check_columns, fields_of
from zkcoord.spark.sinks.once import DataFile, append_once, written_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOKEN = "zkcoordCommit"  # in the commit's own information
RECENT = 50  # commits among which one whose answer was lost is looked for
COMMIT_RETRIES = 100  # other writers that append at the same time take a version each
KNOWN_FEATURES = {  # of a table's writers: a plain append with statistics keeps to them
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "generatedColumns",
}
REFUSED_FIELDS = ("delta.invariants", "delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")


def write_delta(
    df: DataFrame,
    batch: Batch,
    table: str | Path,
    *,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Append the batch's rows to a Delta table in one transaction, each record once; return how many were appended.

    `df` has the columns topic, partition and offset, which tell what the table has already. All its columns are
    written, or what `transform(df)` returns, which is given only the rows that the table lacks: so even a count over
    several partitions is exact. `table` is a path that driver and executors share, or a URI of a store that delta-rs
    knows, with its `storage_options`. A table that does not exist is made, with the columns `partition_by`.

    UsageError, with nothing written, if the columns do not fit those of the table, and for tables that need more of
    their writers than an append (column mapping, constraints, generated columns). Other writers may append meanwhile.
    `rows_passed_over` warns of rows that the table has though the batch brings them for the first time, `rows_missing`
    of a batch that begins behind the table's end.

    Data files that no transaction took, of a program that died, are removed by the table's own `vacuum(full=True)`.
    """
    check_batch(batch)
    if isinstance(partition_by, str):
        raise UsageError(f"partition_by is {partition_by!r}; give a list of column names")
    uri = _uri(table)
    place = _Place(uri, dict(storage_options or {}), tuple(partition_by))
    return append_once(
        df, batch, uri, lambda: place.open(lambda: df if transform is None else transform(df)), transform
    )


def _uri(table: str | Path) -> str:
    """Return a path without a scheme, or a URI."""
    text = str(table)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    return text.rstrip("/") if "://" in text else str(Path(text).absolute())


class _Place:
    """Where the table is."""

    def __init__(self, uri: str, options: dict[str, str], partition_by: tuple[str, ...]) -> None:
        try:
            import deltalake
        except ImportError as error:
            raise UsageError("a Delta table needs an extra package: pip install 'zkcoord[delta]'") from error
        self.deltalake = deltalake
        self.uri, self.options, self.partition_by = uri, options, partition_by

    def open(self, rows: Callable[[], DataFrame]) -> _Version:
        """Return the newest version, of a new table if there was none."""
        from deltalake.exceptions import TableNotFoundError

        try:
            found = self.deltalake.DeltaTable(self.uri, storage_options=self.options)
        except TableNotFoundError:
            self._create(rows())
            found = self.deltalake.DeltaTable(self.uri, storage_options=self.options)
        return _Version(self, found)

    def _create(self, rows: DataFrame) -> None:
        """Another one may be doing the same: the first one's table stays."""
        strange = sorted(set(self.partition_by) - set(rows.columns))
        if strange:
            raise UsageError(f"partition_by names the column {strange[0]!r}, which the DataFrame has not")
        if "://" not in self.uri:
            Path(self.uri).mkdir(parents=True, exist_ok=True)
        schema = self.deltalake.Schema.from_json(rows.schema.json())
        self.deltalake.DeltaTable.create(
            self.uri, schema, mode="ignore", partition_by=[*self.partition_by], storage_options=self.options
        )


class _Version:
    """A `once.Snapshot` of the table."""

    def __init__(self, place: _Place, table: Any) -> None:
        self._place, self._table = place, table

    def end(self, name: str) -> int | None:
        """Return the version of the application transaction."""
        found: int | None = self._table.transaction_version(name)
        return found

    def has(self, token: str) -> bool:
        """Look into what the last commits say of themselves."""
        return any(each.get(TOKEN) == token for each in self._table.history(RECENT))

    def write(self, rows: DataFrame) -> Collection[DataFile]:
        """Write files of the table's columns."""
        described = self._table.metadata()
        fields = fields_of(self._table.schema().to_json())
        _check_table(self._table, fields)
        if self._place.partition_by and [*self._place.partition_by] != [*described.partition_columns]:
            raise UsageError(
                f"partition_by is {[*self._place.partition_by]}, and the table {self._place.uri} is partitioned by "
                f"{[*described.partition_columns]}"
            )
        check_columns(fields_of(rows.schema.json()), fields, self._place.uri)
        required = [name for name, field in fields.items() if not field["nullable"]]
        plan = {
            "uri": self._place.uri,
            "library": "deltalake",
            "options": self._place.options,
            "required": required,
            "kept": False,
        }
        return written_in_tasks(rows, {**plan, "partition_by": [*described.partition_columns]})

    def commit(self, files: Collection[DataFile], ends: Mapping[str, int], token: str) -> None:
        """Commit one transaction of the table."""
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        added = [
            AddAction(each.path, each.size, json.loads(each.partition), now_ms, True, each.stats) for each in files
        ]
        marks = [self._place.deltalake.Transaction(name, end, now_ms) for name, end in sorted(ends.items())]
        self._table.create_write_transaction(
            added,
            "append",
            self._table.schema(),
            partition_by=[*self._table.metadata().partition_columns],
            commit_properties=self._place.deltalake.CommitProperties(
                custom_metadata={TOKEN: token}, app_transactions=marks, max_commit_retries=COMMIT_RETRIES
            ),
        )

    def unsure(self, error: Exception) -> bool:
        """True for every refusal and failure of delta-rs; a program's own mistakes are raised."""
        from deltalake.exceptions import DeltaError

        return isinstance(error, DeltaError | OSError)


def _check_table(table: Any, fields: Mapping[str, Any]) -> None:
    """UsageError for a table that needs more of its writers than an append."""
    needed = sorted(set(table.protocol().writer_features or ()) - KNOWN_FEATURES)
    rules = [f"the feature {name}" for name in needed]
    settings = table.metadata().configuration
    rules += [f"the setting {name}" for name in sorted(settings) if name.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        rules.append("column mapping")
    rules += [
        f"{rule} of the column {name!r}"
        for name, field in fields.items()
        for rule in REFUSED_FIELDS
        if rule in field.get("metadata", {})
    ]
    if rules:
        raise UsageError(
            f"the table {table.table_uri} has {rules[0]}, which this sink does not know: take that off the table, or "
            "write to another one"
        )
