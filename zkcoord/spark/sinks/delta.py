"""A Delta table in which each record is once, on delta-rs (`deltalake`).

Executors write data files below the table's path. The driver program commits them in one transaction of the table. For
each partition of the batch that transaction also carries an application transaction (`txn`), whose version is the
range's end. delta-rs refuses a commit if another one with the same application id came after the snapshot from which it
was decided. So if two programs write the same partition at once, one of them reads the table again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.ranges import Batch, check_batch
from zkcoord.spark.sinks.calls import transformed
from zkcoord.spark.sinks.columns import check_columns, check_split, fields_of
from zkcoord.spark.sinks.data_files import DataFile, write_data_files
from zkcoord.spark.sinks.delta_restores import (
    RESTORED,
    Commit,
    commit_in,
    last_restore,
    restore_behind,
    restored_to,
    since,
)
from zkcoord.spark.sinks.once import append_once
from zkcoord.spark.sinks.places import is_uri, text_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame

TOKEN = "zkcoordCommit"  # key in the commit's own information
RECENT = 50  # number of commits in which a commit with a lost answer is searched
KEPT_MAX = 8  # number of tables whose last versions stay in a program's memory
FOLLOWED_MAX = 20  # commits after a kept version, each of which must be read; with more, the table is read again
COMMIT_RETRIES = 100  # other writers that append at the same time take a version each
KNOWN_FEATURES = {  # features of a table's writers that a plain append with statistics satisfies
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
FORGETS = "delta.setTransactionRetentionDuration"  # the table drops the ends of partitions that are quiet for so long
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
    """Append the batch's rows to a Delta table in one transaction, each record once. Return the number of appended
    rows.

    `df` has the columns topic, partition and offset, which determine what the table has already. All its columns are
    written, or those of `transform(df)`. `transform` gets only the rows that the table lacks, so even a count over
    several partitions is exact. `table` is a path that driver and executors share, or a URI of a store that delta-rs
    knows, with its `storage_options`. A missing table is created, partitioned by the columns `partition_by`.

    Raises UsageError, with nothing written, if the columns do not fit the table, and for tables that demand more of a
    writer than an append (column mapping, constraints, generated columns). Other writers may append at the same time.
    `rows_passed_over` warns of rows that the table has although the batch brings them for the first time, and
    `rows_missing` of a batch that begins after the table's end.

    Data files of a program that died before the commit are removed by the table's own `vacuum(full=True)`.
    """
    check_batch(batch)
    if isinstance(partition_by, str):
        raise UsageError(f"partition_by is {partition_by!r}; give a list of column names")
    uri = _uri(table)
    place = _Place(uri, dict(storage_options or {}), tuple(partition_by))
    return append_once(df, batch, uri, lambda: place.open(lambda: transformed(df, transform)), transform)


def delta_ends(
    table: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> Callable[[], Callable[[str], int | None]]:
    """Return a value for `SparkConsumer(resume_from=...)`: how far `write_delta` has written this table.

    A table that does not exist, or that this sink has not written, moves nothing. Raises UsageError without the
    package.
    """
    where = (_uri(table), dict(storage_options or {}), ())
    _Place(*where)

    @contextmanager
    def reading() -> Iterator[None]:
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            raise UnavailableError(f"the table {table} cannot be read for its ends, try again: {error}") from error

    def read() -> Callable[[str], int | None]:
        from deltalake.exceptions import TableNotFoundError

        with reading():
            try:
                newest = _Place(*where).newest()
            except TableNotFoundError:
                return lambda name: None
        return reading()(newest.end)  # it reads the log, too

    return read


def _uri(table: str | Path) -> str:
    """Return a path without a scheme, or a URI. Raises UsageError for neither."""
    text = text_of(table).removeprefix("file://")
    return text.rstrip("/") if is_uri(text) else str(Path(text).absolute())


class _Place:
    """The table's place."""

    def __init__(self, uri: str, options: dict[str, str], partition_by: tuple[str, ...]) -> None:
        try:
            import deltalake
        except ImportError as error:
            raise UsageError("a Delta table needs an extra package: pip install 'zkcoord[delta]'") from error
        self.deltalake = deltalake
        self.uri, self.options, self.partition_by = uri, options, partition_by

    def open(self, rows: Callable[[], DataFrame]) -> _Version:
        """Return the newest version; that of a new table if there was none."""
        from deltalake.exceptions import TableNotFoundError

        kept = _kept.take(self._key)
        if kept is not None and kept.follow():
            return kept
        try:
            return self.newest()
        except TableNotFoundError:
            self._create(rows())
            return self.newest()

    def newest(self) -> _Version:
        """Return the newest version. Raises TableNotFoundError if there is no table."""
        return _Version(self, self.deltalake.DeltaTable(self.uri, storage_options=self.options))

    def at(self, version: int | datetime) -> _Version | None:
        """Return an earlier version. None: the log does not have it any more."""
        from deltalake.exceptions import DeltaError

        table = self.deltalake.DeltaTable(self.uri, storage_options=self.options)
        try:
            table.load_as_version(version)
        except DeltaError:
            if isinstance(version, int) and self.commits(version) is None:
                return None
            raise  # a store that fails has removed nothing
        return _Version(self, table)

    @property
    def _key(self) -> object:
        return self.uri, tuple(sorted(self.options.items())), self.partition_by

    def keep(self, version: _Version) -> None:
        """Let the next batch begin with this version, which need not be read again."""
        _kept.put(self._key, version)

    def commits(self, version: int) -> Mapping[str, Any] | None:
        """Return the information in the commit of this version. None: the log does not have it any more."""
        found = self.commit(version)
        return None if found is None else found.told

    def commit(self, version: int) -> Commit | None:
        """Return a commit. None: the log does not have it, or not any more.

        It reads one file. delta-rs's own `history` would block all threads of the program while a store is slow, and it
        numbers its answers from a version that it guesses.
        """
        try:
            with self._files.open_input_stream(f"_delta_log/{version:020}.json") as log:
                return commit_in(log.read().decode())
        except FileNotFoundError:
            return None

    @cached_property
    def _files(self) -> FileSystem:
        from zkcoord.spark.sinks.files_in_tasks import filesystem_of

        return filesystem_of(self.uri, "deltalake", self.options)

    def _create(self, rows: DataFrame) -> None:
        """Create the table. Another program may do so at the same time: the first one's table stays."""
        strange = sorted(set(self.partition_by) - set(rows.columns))
        if strange:
            raise UsageError(f"partition_by names the column {strange[0]!r}, which the DataFrame has not")
        if "://" not in self.uri:
            Path(self.uri).mkdir(parents=True, exist_ok=True)
        schema = self.deltalake.Schema.from_json(rows.schema.json())
        self.deltalake.DeltaTable.create(
            self.uri, schema, mode="ignore", partition_by=[*self.partition_by], storage_options=self.options
        )


class _Kept:
    """Keeps tables' last versions from one batch to the next. Without it delta-rs would read the whole log since the
    last checkpoint, once for the table and once for each partition's end. A version that was taken belongs to its taker
    alone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._versions: dict[object, _Version] = {}

    def take(self, key: object) -> _Version | None:
        with self._lock:
            return self._versions.pop(key, None)

    def put(self, key: object, version: _Version) -> None:
        with self._lock:
            self._versions[key] = version
            for oldest in [*self._versions][:-KEPT_MAX]:
                del self._versions[oldest]


_kept = _Kept()


class _Version:
    """A `once.Snapshot` of the table."""

    def __init__(self, place: _Place, table: Any) -> None:
        self._place, self._table = place, table
        self._told: Mapping[str, Any] = {}  # information in the version's commit
        self._marks: dict[str, int | None] = {}
        # versions of application transactions that were looked up or came later

    @cached_property
    def _restore(self) -> int | None:
        return last_restore(self._commits, self._table.version())

    def _commits(self, version: int) -> Mapping[str, Any] | None:
        found = self._place.commits(version)
        if version == self._table.version():
            self._told = found or {}
        return found

    def follow(self) -> bool:
        """Advance to the newest version with the commits after this one. False if that is impossible: the log does not
        have this version's commit unchanged, so the table is another one, or there are too many commits since."""
        from deltalake.exceptions import DeltaError

        try:
            if not self._is_in_log():
                return False
            at = self._table.version()
            while (found := self._place.commit(at + 1)) is not None:
                at += 1
                if at > self._table.version() + FOLLOWED_MAX:
                    return False
                self._told, self._restore = found.told, restore_behind(found.told, at, self._restore)
                self._marks.update(found.ends)
            if at > self._table.version():
                self._table.update_incremental()
            return bool(self._told) and self._table.version() == at
        except (DeltaError, OSError):
            return False

    def _is_in_log(self) -> bool:
        """True if the log has this version's commit unchanged."""
        return (self._place.commits(self._table.version()) or {}) == self._told

    def end(self, name: str) -> int | None:
        """Return the version of the application transaction, as it was in the version that was restored last."""
        found = self._mark(since(name, self._restore))
        if found is not None or self._restore is None:
            return found
        before = restored_to(self._place.commits, self._restore, self._place.uri)
        restored = None if before is None else self._place.at(before)
        return None if restored is None else restored.end(name)

    def _mark(self, name: str) -> int | None:
        if name not in self._marks:
            self._marks[name] = self._table.transaction_version(name)
        return self._marks[name]

    def has(self, token: str) -> bool:
        """Look for the token in the last commits' information."""
        return any(each.get(TOKEN) == token for each in self._table.history(RECENT))

    def rules(self) -> object:
        """Return the table's identity, since a table that was created again may lack the files; also its columns,
        partitions, settings, and demands on writers."""
        told, features = self._table.metadata(), self._table.protocol().writer_features or ()
        return told.id, self._table.schema().to_json(), told.partition_columns, told.configuration, sorted(features)

    def write(self, rows: DataFrame) -> Collection[DataFile]:
        """Write files with the table's columns."""
        described = self._table.metadata()
        fields = fields_of(self._table.schema().to_json())
        _check_table(self._table, fields)
        if self._place.partition_by and [*self._place.partition_by] != [*described.partition_columns]:
            raise UsageError(
                f"partition_by is {[*self._place.partition_by]}, and the table {self._place.uri} is partitioned by "
                f"{[*described.partition_columns]}"
            )
        given = fields_of(rows.schema.json())
        check_columns(given, fields, self._place.uri)
        check_split(given, described.partition_columns, self._place.uri)
        required = [name for name, field in fields.items() if not field["nullable"]]
        plan = {
            "uri": self._place.uri,
            "library": "deltalake",
            "options": self._place.options,
            "partition_by": [*described.partition_columns],
            "kept": False,
            "required": required,
        }
        return write_data_files(rows, plan)

    def commit(self, files: Collection[DataFile], ends: Mapping[str, int], token: str) -> None:
        """Commit one transaction of the table."""
        from deltalake.transaction import AddAction

        if not self._is_in_log():  # otherwise delta-rs would leave a gap in the new table's log
            raise OSError(f"the table {self._place.uri} was made again while a batch was written to it")
        now_ms = time.time_ns() // 1_000_000
        added = [
            AddAction(each.path, each.size, json.loads(each.partition), now_ms, True, each.stats) for each in files
        ]
        marks = {since(name, self._restore): end for name, end in ends.items()}
        marks.update(ends)  # for a log that does not have the RESTORE any more, nor a commit that knew it
        told = {TOKEN: token, RESTORED: "" if self._restore is None else str(self._restore)}
        self._table.create_write_transaction(
            added,
            "append",
            self._table.schema(),
            partition_by=[*self._table.metadata().partition_columns],
            commit_properties=self._place.deltalake.CommitProperties(
                custom_metadata=told,
                app_transactions=[self._place.deltalake.Transaction(*each, now_ms) for each in sorted(marks.items())],
                max_commit_retries=COMMIT_RETRIES,
            ),
        )
        self._place.keep(self)

    def unsure(self, error: Exception) -> bool:
        """True for every refusal and failure of delta-rs. A program's own mistakes are raised."""
        from deltalake.exceptions import DeltaError

        return isinstance(error, DeltaError | OSError)


def _check_table(table: Any, fields: Mapping[str, Any]) -> None:
    """Raises UsageError for a table that demands more of a writer than an append."""
    needed = sorted(set(table.protocol().writer_features or ()) - KNOWN_FEATURES)
    rules = [f"the feature {name}" for name in needed]
    settings = table.metadata().configuration
    rules += [f"the setting {name}" for name in sorted(settings) if name.startswith("delta.constraints.")]
    rules += [f"the setting {FORGETS}"] if FORGETS in settings else []
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
