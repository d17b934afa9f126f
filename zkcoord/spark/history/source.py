"""The offset log as a Python data source: it reads slices of the log, and returns commits. It runs in Spark's Python
workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader

from zkcoord.spark.history.decoding import COMMIT, commits_of
from zkcoord.spark.readers.python import Slices, as_task, forget_archives, read_in_worker

FORMAT = "zkcoord-offset-log"
DECODED_MIN = 20_000  # records; decoding in columns has a fixed cost for each batch
TYPES = {pa.bool_(): "boolean", pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}


class OffsetLogSource(DataSource):  # type: ignore[misc]
    """`spark.read.format(FORMAT)` with the option `plan`, as in `RangesSource`, and the option `groups`: JSON, null for
    all groups."""

    @classmethod
    def name(cls) -> str:
        """Spark calls it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of `COMMIT`."""
        forget_archives()
        return ", ".join(f"{field.name} {TYPES[field.type]}" for field in COMMIT)

    def reader(self, schema: object) -> OffsetLogReader:
        """Spark calls it."""
        return OffsetLogReader(json.loads(self.options["plan"]), json.loads(self.options["groups"]))


class OffsetLogReader(DataSourceReader):  # type: ignore[misc]
    """Reads the commits of each task's slices."""

    def __init__(self, plan: Mapping[str, Any], groups: Sequence[str] | None) -> None:
        self._plan, self._groups = plan, None if groups is None else pa.array(groups, pa.string())

    def partitions(self) -> Sequence[Slices]:
        """Return the tasks in the order of the plan."""
        forget_archives()
        return [as_task(each) for each in self._plan["tasks"]]

    def read(self, partition: Slices | None) -> Iterator[pa.RecordBatch]:
        """Return the commits of one task."""
        if partition is None:
            return
        for records in together(read_in_worker(self._plan, partition)):
            commits = commits_of(records)
            if self._groups is not None:
                commits = commits.filter(pc.is_in(commits.column("group"), self._groups))
            if commits.num_rows:
                yield commits


def together(batches: Iterable[pa.RecordBatch], records_min: int = DECODED_MIN) -> Iterator[pa.RecordBatch]:
    """Return the records in fewer, larger batches."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= records_min:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)
