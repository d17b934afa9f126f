"""Writes data files of a table before a transaction names them.

Below a path, Spark's own writer writes them, in a folder of its own (`zkcoord-drafts/…`); the driver reads the footers,
and moves the files to the others. Python tasks write them (`files_in_tasks`) in a store that the table's library can
access, and in a table that is partitioned by times, which Spark would write in the session's time zone.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from zkcoord.errors import UsageError
from zkcoord.spark.sinks.by_value import Task, by_value
from zkcoord.spark.sinks.columns import fields_of
from zkcoord.spark.sinks.spark_writer import times_in_microseconds, write_drafts

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame

DRAFTS = "zkcoord-drafts"  # in the folder of the table's files: has a folder for each batch while it is written
OLD_S = 7 * 24 * 3600  # age of drafts that nobody writes any more; as with Delta's own `vacuum`
MARK = "="  # comes before a value in its folder's name: otherwise Spark would put empty texts into the folder of nulls
SPELLED_BY_ZONE = ("timestamp", "timestamp_ntz")  # Spark writes them in the session's time zone in the name of a folder


class DataFile(NamedTuple):
    """A file that Spark has written, with the fields of `files_in_tasks.FORMAT`."""

    path: str  # within the table
    size: int
    rows: int
    partition: str  # JSON: the values of the table's partition columns
    stats: str  # JSON


def write_data_files(rows: DataFrame, plan: Mapping[str, Any]) -> tuple[DataFile, ...]:
    """Write the rows in Spark's tasks. Return the files that have rows.

    `plan` has the folder's `uri` (a path, or a URI for `library` with `options`), the table's columns `partition_by`,
    which stay in the files if they are `kept`, and the `required` columns, which must have no null. Raises UsageError
    for a null there, if the workers lack a package, and if the driver does not see the files.
    """
    from zkcoord.spark.sinks import files_in_tasks

    fields = fields_of(rows.schema.json())
    required = [name for name in plan["required"] if name in fields and fields[name]["nullable"]]
    in_folders = not any(fields[name]["type"] in SPELLED_BY_ZONE for name in plan["partition_by"] if name in fields)
    try:
        rows = _without_nulls(rows, required)
        if "://" not in plan["uri"] and in_folders:
            return _by_spark(rows, Path(plan["uri"]), plan["partition_by"], kept=plan["kept"])
        return tuple(DataFile(*row) for row in rows.mapInArrow(task_of(plan), files_in_tasks.FORMAT).collect())
    except Exception as error:
        if files_in_tasks.LACKING in str(error):
            raise UsageError(
                f"Spark's Python workers lack {plan['library']}, which writes to an object store: pip install it into "
                "the Python that PYSPARK_PYTHON names on every machine of the executors"
            ) from error
        for name in required:
            if _null_in(name) in str(error):
                raise UsageError(_null_in(name)) from error
        raise


def task_of(plan: Mapping[str, Any]) -> Task:
    """Return the function that a task runs. It is passed to the workers by value."""
    from zkcoord.spark.sinks import files_in_tasks

    return by_value(partial(files_in_tasks.write_files, plan), files_in_tasks)


def _without_nulls(rows: DataFrame, required: Collection[str]) -> DataFrame:
    """Return the rows such that writing them fails at a null in one of these columns."""
    if not required:
        return rows
    return rows.selectExpr(
        *(
            f"coalesce({_quoted(name)}, raise_error({_literal(_null_in(name))})) AS {_quoted(name)}"
            if name in required
            else _quoted(name)
            for name in rows.columns
        )
    )


def _null_in(name: str) -> str:
    return f'the column "{name}" has a null, and in the table it may not be null'


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _by_spark(rows: DataFrame, folder: Path, names: Sequence[str], *, kept: bool) -> tuple[DataFile, ...]:
    """Let Spark write into a folder next to the table's files, and move the files."""
    drafts = folder / DRAFTS / uuid.uuid4().hex
    _remove_left(drafts.parent)
    split = {f"zkcoord{number}": name for number, name in enumerate(names)}  # as text, in addition to the column itself
    if split:
        written = [_quoted(name) for name in rows.columns if kept or name not in names]
        rows = rows.selectExpr(
            *written, *(f"'{MARK}' || CAST({_quoted(name)} AS STRING) AS {key}" for key, name in split.items())
        )
    try:
        with times_in_microseconds(rows):
            files = write_drafts(rows, drafts, [*split])
        return tuple(_moved(folder, split, kept, *each) for each in files.items() if each[1].num_rows)
    finally:
        shutil.rmtree(drafts, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove old drafts of programs that were killed. The tables' own removal of files leaves those that Spark's tasks
    had not finished: Iceberg passes over names such as `_temporary`."""
    with suppress(FileNotFoundError):  # there is no folder yet, or another program was faster
        for each in folder.iterdir():
            if time.time() - each.stat().st_mtime > OLD_S:
                shutil.rmtree(each, ignore_errors=True)


def _moved(folder: Path, split: Mapping[str, str], kept: bool, draft: Path, footer: FileMetaData) -> DataFile:
    """Give a file its name in the table."""
    from zkcoord.spark.sinks.files_in_tasks import NO_VALUE, folder_of, statistics

    folders = dict(each.name.split("=", 1) for each in draft.parents if "=" in each.name)
    values = {  # an empty text is a null in Delta's log
        name: None if folders[key] == NO_VALUE else unquote(folders[key]).removeprefix(MARK) or None
        for key, name in split.items()
    }
    path = f"{'' if kept else folder_of(values)}zkcoord-{uuid.uuid4().hex}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    size = draft.replace(folder / path).stat().st_size
    return DataFile(path, size, footer.num_rows, json.dumps(values), json.dumps(statistics(footer)))
