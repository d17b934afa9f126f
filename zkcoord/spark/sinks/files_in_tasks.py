"""Writes a table's data files in Spark's tasks. This module runs in Spark's Python workers.

Spark passes these functions by value: a worker needs pyarrow, and in an object store the table's own library, but not
zkcoord. So this module imports no other module of zkcoord.

A file gets a unique name, and no reader sees it before a transaction of the table names it. Files of a task that fails,
or that Spark runs twice, are never named.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs, parquet

# columns of a task's answer about its files
FORMAT = "path string, size bigint, rows bigint, partition string, stats string"
ROWS_MAX = 250_000  # of a row group
OPEN_MAX = 64  # open files of one task; there is one for each value of the table's partition columns
TEXT_MAX = 64  # characters of a smallest or largest value; longer ones are useless and fill the log
COMPRESSION = "snappy"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder of nulls
LACKING = "the Python workers of Spark lack"  # the driver recognises it in a Java trace


def write_files(plan: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task. Return a row for each file.

    `plan` has the folder's `uri`, the `options` for its store (`filesystem_of`), and the table's columns
    `partition_by`, which stay in the files if they are `kept`.
    """
    filesystem = None
    opened: dict[tuple[str | None, ...], _File] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        filesystem = filesystem or filesystem_of(plan["uri"], plan["library"], plan["options"])
        for values, rows in by_values(batch, plan["partition_by"], kept=plan["kept"]):
            if values not in opened:
                if len(opened) >= OPEN_MAX:
                    yield told(opened.values())
                    opened = {}
                named = dict(zip(plan["partition_by"], values, strict=True))
                opened[values] = _File(filesystem, named, "" if plan["kept"] else folder_of(named))
            opened[values].add(rows)
    if opened:
        yield told(opened.values())


class ParquetRows:
    """Writes rows into `sink` as Parquet, collected into row groups."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._footers: list[parquet.FileMetaData] = []
        self._writer: parquet.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROWS_MAX:
            self._flush()

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            settings: dict[str, Any] = {"compression": COMPRESSION, "store_schema": False}
            settings |= {"metadata_collector": self._footers}
            self._writer = parquet.ParquetWriter(self._sink, rows.schema, **settings)
        self._writer.write_table(rows)
        self._waiting, self._rows = [], 0

    def close(self) -> parquet.FileMetaData:
        """End the file, but not `sink`. Return the file's footer."""
        if self._waiting:
            self._flush()
        assert self._writer is not None, "a file is opened for rows"
        self._writer.close()
        (footer,) = self._footers
        return footer


class _File:
    """One data file of a table."""

    def __init__(self, filesystem: fs.FileSystem, values: Mapping[str, str | None], folder: str) -> None:
        self._path = f"{folder}zkcoord-{uuid.uuid4().hex}.parquet"
        self._values = values
        if folder:
            filesystem.create_dir(folder.rstrip("/"), recursive=True)
        self._sink = filesystem.open_output_stream(self._path)
        self._rows = ParquetRows(self._sink)

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows.add(batch)

    def close(self) -> tuple[str, int, int, str, str]:
        """End the file. Return what a transaction needs to know about it, in the order of FORMAT."""
        footer = self._rows.close()
        size = self._sink.tell()
        self._sink.close()
        return self._path, size, footer.num_rows, json.dumps(self._values), json.dumps(statistics(footer))


def told(files: Iterable[_File]) -> pa.RecordBatch:
    """Close the files, and describe them."""
    columns = zip(*[each.close() for each in files], strict=True)
    types = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["path", "size", "rows", "partition", "stats"])


def filesystem_of(uri: str, library: str, options: Mapping[str, str]) -> fs.FileSystem:
    """Return a file system whose root is this folder: a path, or a URI as `library` understands it."""
    if "://" not in uri:
        Path(uri).mkdir(parents=True, exist_ok=True)
        return fs.SubTreeFileSystem(uri, fs.LocalFileSystem())
    try:
        if library == "deltalake":
            from deltalake.fs import DeltaStorageHandler

            return fs.PyFileSystem(DeltaStorageHandler(uri, dict(options)))
        from pyiceberg.io.pyarrow import PyArrowFileIO
    except ImportError as error:
        raise RuntimeError(f"{LACKING} {library}: {error}") from error
    scheme, host, path = PyArrowFileIO.parse_location(uri, dict(options))
    return fs.SubTreeFileSystem(path, PyArrowFileIO(dict(options)).fs_by_scheme(scheme, host))


def by_values(
    batch: pa.RecordBatch, names: Sequence[str], *, kept: bool = False
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Return the rows for each combination of values in the columns `names`, without these columns unless they are
    `kept`."""
    if not names:
        yield (), batch
        return
    keys = [batch.column(batch.schema.get_field_index(name)) for name in names]
    rest = batch.select([name for name in batch.schema.names if kept or name not in names])
    found = pa.Table.from_arrays(keys, list(names)).group_by(list(names)).aggregate([]).to_pylist()
    if len(found) == 1:
        yield tuple(as_text(found[0][name]) for name in names), rest
        return
    for row in found:
        mask = None
        for key, name in zip(keys, names, strict=True):
            value = row[name]
            same = pc.is_null(key) if value is None else pc.equal(key, pa.scalar(value, key.type))
            same = pc.fill_null(same, False)
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple(as_text(row[name]) for name in names), rest.filter(mask)


def folder_of(values: Mapping[str, str | None]) -> str:
    """Return the folder of a file with these values, in a table whose files do not contain them. By Delta's protocol
    only the table's log counts, yet some readers (Polars) take the values from the path.

    >>> folder_of({"day": "2026-01-02", "word": "a b/ü"}), folder_of({"day": None}), folder_of({})
    ('day=2026-01-02/word=a%20b%2F%C3%BC/', 'day=__HIVE_DEFAULT_PARTITION__/', '')
    """
    return "".join(
        f"{quote(name, safe='')}={NO_VALUE if value is None else quote(value, safe='')}/"
        for name, value in values.items()
    )


def as_text(value: Any) -> str | None:
    """Write a value of a partition column as text, as Delta's protocol does. An empty text is null there.

    >>> as_text(True), as_text(date(2026, 1, 2)), as_text(""), as_text(datetime(2026, 1, 2, tzinfo=UTC))
    ('true', '2026-01-02', None, '2026-01-02 00:00:00.000000')
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return _in_utc(value).isoformat(" ", "microseconds")
    return str(value)


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at


def statistics(footer: parquet.FileMetaData) -> dict[str, Any]:
    """Return the description of a file's content for Delta's log. Readers skip files by it."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for number in range(footer.num_columns):
        chunks = [group.column(number) for group in groups]  # pyarrow's statistics do not outlive their chunk
        name = chunks[0].path_in_schema
        found = [each.statistics for each in chunks]
        if "." in name or not all(each.is_stats_set for each in chunks):
            continue
        if all(each.has_null_count for each in found):
            nulls[name] = sum(each.null_count for each in found)
        bounds = [each for each in found if each.has_min_max]
        if any(not each.has_min_max and each.num_values for each in found):
            continue
        try:
            low = spelled(min((each.min for each in bounds), default=None), up=False)
            high = spelled(max((each.max for each in bounds), default=None), up=True)
        except OverflowError:  # a time or a day has a year that Python does not have
            continue
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def spelled(value: Any, *, up: bool) -> Any:
    """Return a smallest or largest value as JSON; None if it is left out. Times have whole milliseconds."""
    if isinstance(value, datetime):
        at = _in_utc(value)
        rest = timedelta(microseconds=at.microsecond % 1000)
        at += timedelta(milliseconds=1) - rest if up and rest else -rest
        return at.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str)
        or (isinstance(value, str) and len(value) > TEXT_MAX)
    ):
        return None
    return value
