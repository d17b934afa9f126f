"""What a sink sees of Spark, on Arrow and DuckDB: the rows of ranges, filtered and written as tasks would do it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import Schema
from pyarrow.fs import FileSystem, FileType

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


def lose_an_answer(
    monkeypatch: pytest.MonkeyPatch, snapshot: Any, *, happened: bool, then: Callable[[], object] | None
) -> None:
    """The first commit of a table's snapshots has no answer; it `happened` or not, and others act right behind it."""
    commit, lost = snapshot.commit, []

    def commit_and_lose(self: Any, *arguments: Any) -> None:
        if lost:
            return commit(self, *arguments)
        lost.append(self)
        if happened:
            commit(self, *arguments)
        if then:
            then()
        raise OSError("the connection was reset")

    monkeypatch.setattr(snapshot, "commit", commit_and_lose)


class Session:
    """Of a DataFrame, with Spark's own setting of how timestamps are written."""

    def __init__(self) -> None:
        self._settings = {"spark.sql.parquet.outputTimestampType": "INT96"}
        self.conf = self
        self.get, self.set = self._settings.__getitem__, self._settings.__setitem__


class Remote(Session):
    """A session through Spark Connect: without Hadoop's client in its driver program."""


Remote.__module__ = "pyspark.sql.connect.session"


class TwoSteps:
    """A file system whose rename over a file is two steps, as Arrow's in HDFS; `between` is called between them."""

    def __init__(self, store: FileSystem, between: Callable[[], object]) -> None:
        self._store, self._between = store, between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def move(self, draft: str, file: str) -> None:
        if self._store.get_file_info(file).type != FileType.NotFound:
            self._store.delete_file(file)
            self._between()
        self._store.move(draft, file)


class Frame:
    """A DataFrame of Arrow rows. Each `tasks` rows are a task's; `on_write` is called when its files are written."""

    def __init__(self, rows: pa.Table, on_write: Callable[[], object] | None = None, tasks: int = 3) -> None:
        self.rows, self._on_write, self._tasks = rows, on_write, tasks
        self.columns = rows.schema.names
        self.schema = self
        self.sparkSession = Session()

    @classmethod
    def of(cls, *ranges: OffsetRange, **settings: Any) -> Frame:
        columns = zip(*records(*ranges), strict=True)
        return cls(pa.table([pa.array(c, t) for c, t in zip(columns, TYPES.types, strict=True)], TYPES), **settings)

    def json(self) -> str:
        return str(Schema.from_arrow(self.rows.schema).to_json())

    def where(self, condition: str) -> Frame:
        return self._queried(f"SELECT * FROM rows WHERE {condition}")

    def selectExpr(self, *expressions: str) -> Frame:  # noqa: N802
        return self._queried(f"SELECT {', '.join(expressions)} FROM rows".replace("raise_error(", "error("))

    def isEmpty(self) -> bool:  # noqa: N802
        return self.rows.num_rows == 0

    def count(self) -> int:
        return int(self.rows.num_rows)

    def sameSemantics(self, other: Frame) -> bool:  # noqa: N802
        return bool(self.rows.equals(other.rows))

    def _queried(self, question: str) -> Frame:
        rows = self.rows
        with duckdb.connect() as own:  # threads do not share one
            found = own.sql(question.replace("`", '"')).to_arrow_table()
        types = dict(zip(rows.schema.names, rows.schema.types, strict=True))
        wanted = pa.schema([(name, types.get(name, pa.string())) for name in found.schema.names])
        return Frame(found.cast(wanted), self._on_write, self._tasks)

    @property
    def write(self) -> Writer:
        return Writer(self)

    def written(self) -> None:
        if self._on_write is not None:
            self._on_write()

    def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802
        told = [row for task in self.in_tasks() for made in function(task) for row in made.to_pylist()]
        self.written()

        class Result:
            def collect(self) -> Rows:
                return [tuple(row.values()) for row in told]

        return Result()

    def in_tasks(self) -> Iterator[Iterator[pa.RecordBatch]]:
        for first in range(0, max(1, self.rows.num_rows), self._tasks):
            yield iter(self.rows.slice(first, self._tasks).to_batches(2))


class Writer:
    """Spark's own writer, with what it leaves on its way."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._split: tuple[str, ...] = ()
        self.mode = self.options = lambda *_, **__: self

    def partitionBy(self, *names: str) -> Self:  # noqa: N802
        self._split = names
        return self

    def parquet(self, uri: str) -> None:
        folder = Path(uri.removeprefix("file://"))
        old = self._frame.sparkSession.get("spark.sql.parquet.outputTimestampType") == "INT96"
        (folder / "_temporary" / "0").mkdir(parents=True)
        for number, task in enumerate(self._frame.in_tasks()):
            rows = pa.Table.from_batches(task, self._frame.rows.schema)
            for values, found in self._by_values(rows) if rows.num_rows or self._split else [((), rows)]:
                folders = "".join(f"/{name}={self._spelled(v)}" for name, v in zip(self._split, values, strict=True))
                file = Path(f"{folder}{folders}/part-{number:05}-c000.snappy.parquet")
                file.parent.mkdir(parents=True, exist_ok=True)
                pyarrow.parquet.write_table(found, file, use_deprecated_int96_timestamps=old, store_schema=False)
                file.with_name(f".{file.name}.crc").write_bytes(b"crc")
        self._frame.written()

    def _by_values(self, rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        keys = [*zip(*(rows[name].to_pylist() for name in self._split), strict=True)] or [()] * rows.num_rows
        for key in dict.fromkeys(keys):
            yield key, rows.filter(pa.array([each == key for each in keys])).drop_columns([*self._split])

    @staticmethod
    def _spelled(value: str | None) -> str:
        return quote(value, safe=" äöü") if value else "__HIVE_DEFAULT_PARTITION__"


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
                    self.files[unquote(line["add"]["path"])] = line["add"]
                if "remove" in line:
                    self.files.pop(unquote(line["remove"]["path"]), None)
                if "txn" in line:
                    self.ends[line["txn"]["appId"]] = line["txn"]["version"]
                if "commitInfo" in line:
                    self.commits.append(line["commitInfo"])

    def rows(self, columns: str = 'topic, partition, "offset", n', order: str = "1, 2, 3") -> Rows:
        paths = [str(self._table / path) for path in self.files]
        if not paths:
            return []
        files = f"read_parquet({paths!r}, union_by_name = true, hive_partitioning = false)"  # the log has the values
        found = duckdb.sql(f"SELECT {columns} FROM {files} ORDER BY {order}")
        return [*found.fetchall()]

    def counted(self) -> int:
        return sum(json.loads(each["stats"])["numRecords"] for each in self.files.values())
