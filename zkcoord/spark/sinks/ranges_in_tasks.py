"""Writes a file for each range in Spark's tasks, into any file system. This module runs in Spark's Python workers.

A file is made in memory. Then it gets its name atomically. In an object store it is put under its key, by one request
or, if it is large, by the completion of its parts. In other file systems it is a draft, which the driver renames. A
task that fails before has put nothing, and a task that Spark runs twice puts the same key twice.

Spark passes these functions by value, with `files_in_tasks` and `stores`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import fs

from zkcoord.spark.sinks.files_in_tasks import ParquetRows, by_values
from zkcoord.spark.sinks.stores import open_store

# columns for each file; `file` is null if it belongs to no range
FORMAT = "file string, rows bigint, replaced boolean, draft string"
KEY = ("topic", "partition")
Told = tuple[str | None, int, bool, str | None]
PUTS_MAX = 8  # puts at the same time, for a task with many small ranges


class _InMemory:
    """A file that is not stored yet."""

    def __init__(self) -> None:
        self._buffer = pa.BufferOutputStream()
        self._rows = ParquetRows(self._buffer)

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows.add(rows)

    def content(self) -> tuple[int, pa.Buffer]:
        """End the file. Return its number of rows, and its bytes."""
        footer = self._rows.close()
        return footer.num_rows, self._buffer.getvalue()


def write_ranges(plan: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the ranges of one task. Return a row for each.

    `plan` has the folder's `uri`, and the `options` for its store; `files`: topic -> partition -> the file of its
    range; `draft`: the folder of drafts and the end of a draft's name, or None if there are no drafts; `look`: whether
    to find out if a file existed before.
    """
    made: dict[tuple[str | None, ...], _InMemory] = {}
    for batch in batches:
        if batch.num_rows:
            for values, rows in by_values(batch, KEY, kept=True):
                made.setdefault(values, _InMemory()).add(rows)
    if not made:
        return
    files = {values: plan["files"].get(values[0], {}).get(values[1]) for values in made}
    if None in files.values():  # then nothing is written
        yield _told([(None, 0, False, None)])
        return
    store = open_store(plan["uri"], plan["options"])
    contents = [(files[values], *each.content()) for values, each in made.items()]
    with ThreadPoolExecutor(min(PUTS_MAX, len(contents))) as threads:
        yield _told([*threads.map(partial(_put, store, plan), contents)])


def _put(store: fs.FileSystem, plan: Mapping[str, Any], made: tuple[str, int, pa.Buffer]) -> Told:
    file, rows, content = made
    own = plan["draft"] is None and _again()  # it may be, if it is there
    there = plan["look"] and not own and store.get_file_info(file).type != fs.FileType.NotFound
    draft = None
    if plan["draft"] is not None:  # for this attempt only, since Spark may run the task elsewhere at the same time
        draft = f"{plan['draft'][0]}/{file}.{plan['draft'][1]}-{uuid.uuid4().hex[:8]}"
    with store.open_output_stream(draft or file) as sink:
        sink.write(content)
    return file, rows, there, draft


def _again() -> bool:
    """True in a task that Spark runs again: without drafts, files that it finds may be its own."""
    try:
        from pyspark import TaskContext
    except ImportError:
        return False
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def _told(rows: Iterable[Told]) -> pa.RecordBatch:
    kinds = (pa.string(), pa.int64(), pa.bool_(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["file", "rows", "replaced", "draft"])
