"""Packages and libraries that a table or a file system needs: the driver or Spark's Python workers lack them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import fs

from tests.spark.sinks.frames import A, Frame, batch, records
from zkcoord.errors import UsageError
from zkcoord.spark import delta_ends, iceberg_ends, write_delta, write_iceberg, write_parquet_ranges
from zkcoord.spark.sinks import data_files, files_in_stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zkcoord.spark.sinks.by_value import Task

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("sockets_collected"),
]
FRAME: Any = Frame.of(A)


@pytest.mark.parametrize(
    ("package", "module", "use"),
    [
        ("Delta", "deltalake", lambda: write_delta(FRAME, batch(A), "/data/clicks")),
        ("Delta", "deltalake", lambda: delta_ends("/data/clicks")),
        ("Iceberg", "pyiceberg.catalog", lambda: write_iceberg(FRAME, batch(A), "lake.clicks", catalog="default")),
        ("Iceberg", "pyiceberg.catalog", lambda: iceberg_ends("lake.clicks", catalog="default")),
    ],
)
def test_a_program_without_the_package_of_a_table_is_told_which_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str, module: str, use: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"an? {package} table needs .* pip install 'zkcoord\[{package.lower()}\]'"):
        use()


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    columns = "topic string, partition int, offset bigint, n bigint"
    return spark.createDataFrame(records(A), columns).coalesce(1)


@pytest.mark.parametrize(("library", "module"), [("deltalake", "deltalake.fs"), ("pyiceberg", "pyiceberg.io.pyarrow")])
def test_workers_without_the_package_of_a_table_in_a_store_are_told(
    rows: DataFrame, monkeypatch: pytest.MonkeyPatch, library: str, module: str
) -> None:
    of_sink = data_files.task_of

    def without(plan: Mapping[str, Any]) -> Task:
        task = of_sink(plan)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import sys

            there = sys.modules.pop(module, None)
            sys.modules[module] = None  # type: ignore[assignment]
            try:
                yield from task(batches)
            finally:
                del sys.modules[module]
                if there is not None:
                    sys.modules[module] = there

        return run

    monkeypatch.setattr(data_files, "task_of", without)
    plan = {"uri": "s3://lake/clicks", "library": library, "options": {}, "partition_by": (), "kept": True}
    with pytest.raises(
        UsageError, match=f"Spark's Python workers lack {library}, which writes to an object store: pip"
    ):
        data_files.write_data_files(rows, {**plan, "required": ()})


def test_a_worker_without_libhdfs_is_told(rows: DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver has it."""
    of_driver = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(files_in_stores, "_opened", lambda *_: of_driver)
    with pytest.raises(UsageError, match=r"a Python worker of Spark lacks the library .*: libhdfs, .*hdfs://nn/clicks"):
        write_parquet_ranges(rows, batch(A), "hdfs://nn/clicks")
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
