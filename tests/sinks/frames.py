"""What a sink sees of Spark, on Arrow and DuckDB: the rows of ranges, filtered and written as tasks would do it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import Schema

from zkcoord.spark.ranges import Batch, OffsetRange

A, B = OffsetRange("clicks", 0, 10, 14), OffsetRange("clicks", 1, 5, 8)
TYPES = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("n", pa.int64())])
Rows = list[tuple[Any, ...]]


def batch(*ranges: OffsetRange, group: str = "etl", replayed: bool = False) -> Batch:
    return Batch(id="b", seq=0, generation=1, ranges=ranges, group=group, replayed=replayed)


def records(*ranges: OffsetRange) -> Rows:
    return [(each.topic, each.partition, at, at * 7) for each in sorted(ranges) for at in range(each.start, each.end)]


def once(function: Callable[[], object]) -> Callable[[], None]:
    """The function, for the first call."""
    left = [function]

    def call() -> None:
        for each in left[:1]:
            left.remove(each)
            each()

    return call


class Frame:
    """A DataFrame of Arrow rows. Each `tasks` rows are a task's; `on_write` is called when its files are written."""

    def __init__(self, rows: pa.Table, on_write: Callable[[], object] | None = None, tasks: int = 3) -> None:
        self.rows, self._on_write, self._tasks = rows, on_write, tasks
        self.columns = rows.schema.names
        self.schema = self

    @classmethod
    def of(cls, *ranges: OffsetRange, **settings: Any) -> Frame:
        columns = zip(*records(*ranges), strict=True)
        return cls(pa.table([pa.array(c, t) for c, t in zip(columns, TYPES.types, strict=True)], TYPES), **settings)

    def json(self) -> str:
        return str(Schema.from_arrow(self.rows.schema).to_json())

    def where(self, condition: str) -> Frame:
        rows = self.rows
        quoted = condition.replace("`", '"')
        with duckdb.connect() as own:  # threads do not share one
            found = own.sql(f"SELECT * FROM rows WHERE {quoted}").to_arrow_table()
        return Frame(found.cast(rows.schema), self._on_write, self._tasks)

    def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802
        told = [row for task in self._in_tasks() for made in function(task) for row in made.to_pylist()]
        if self._on_write is not None:
            self._on_write()

        class Result:
            def collect(self) -> Rows:
                return [tuple(row.values()) for row in told]

        return Result()

    def _in_tasks(self) -> Iterator[Iterator[pa.RecordBatch]]:
        for first in range(0, max(1, self.rows.num_rows), self._tasks):
            yield iter(self.rows.slice(first, self._tasks).to_batches(2))


class DeltaLog:
    """A Delta table as its protocol describes it, read without delta-rs: JSON lines, and Parquet through DuckDB."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self.files: dict[str, Any] = {}
        self.ends: dict[str, int] = {}
        self.commits: list[Any] = []
        for file in sorted((table / "_delta_log").glob("*.json")):
            for line in map(json.loads, file.read_text().splitlines()):
                if "add" in line:
                    self.files[line["add"]["path"]] = line["add"]
                if "remove" in line:
                    self.files.pop(line["remove"]["path"], None)
                if "txn" in line:
                    self.ends[line["txn"]["appId"]] = line["txn"]["version"]
                if "commitInfo" in line:
                    self.commits.append(line["commitInfo"])

    def rows(self, columns: str = 'topic, partition, "offset", n', order: str = "1, 2, 3") -> Rows:
        paths = [str(self._table / path) for path in self.files]
        if not paths:
            return []
        found = duckdb.sql(f"SELECT {columns} FROM read_parquet({paths!r}, union_by_name = true) ORDER BY {order}")
        return [*found.fetchall()]

    def counted(self) -> int:
        return sum(json.loads(each["stats"])["numRecords"] for each in self.files.values())
