"""The sinks of tables on a real Spark session: its types, its SQL, and its Python workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.sinks.frames import A, B, DeltaLog, batch, records
from zkcoord.errors import UsageError
from zkcoord.spark import write_delta, write_iceberg
from zkcoord.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("sockets_collected"),
]
COLUMNS = "topic string, partition int, offset bigint, n bigint"
TYPES = [  # what a row of each of Spark's types is written and read back as
    "timestamp'2026-01-02 03:04:05.123456' as at",
    "date'2026-01-02' as day",
    "cast(1.5 as decimal(10, 2)) as money",
    "cast('abc' as binary) as bytes",
    "array(1, null) as list",
    "named_struct('a', 1, 'b', 'x') as struct",
    "map('k', 1.5d) as map",
    "cast(1 as tinyint) as tiny",
    "cast(1.5 as float) as real",
    "offset % 2 = 0 as even",
    "cast(null as string) as nothing",
]


def frame(spark: SparkSession, *ranges: OffsetRange) -> DataFrame:
    return spark.createDataFrame(records(*ranges), COLUMNS).repartition(3)


def test_rows_of_every_type_come_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, A, B).selectExpr("*", *TYPES)
    assert write_delta(rows, batch(A, B), tmp_path / "t", partition_by=["even"]) == 7
    files = [str(tmp_path / "t" / path) for path in DeltaLog(tmp_path / "t").files]
    columns = [name for name in rows.columns if name != "even"]  # it stands in the log alone
    read = spark.read.parquet(*files).select(columns).orderBy("topic", "partition", "offset")
    assert read.collect() == rows.select(columns).orderBy("topic", "partition", "offset").collect()
    assert read.schema.simpleString() == rows.select(columns).schema.simpleString()
    found = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert {(row["offset"] % 2 == 0) == row["even"] for row in found.to_pylist()} == {True}


def test_spark_filters_what_the_table_has(spark: SparkSession, tmp_path: Path) -> None:
    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy("topic").count()

    kept: Any = {"rows": None, "counts": count}
    for ranges in ((B,), (A, B), (A._replace(start=12, end=20), B)):
        for name, transform in kept.items():
            write_delta(frame(spark, *ranges), batch(*ranges), tmp_path / name, transform=transform)
    expected = records(A._replace(end=20), B)
    assert DeltaLog(tmp_path / "rows").rows() == expected
    assert DeltaLog(tmp_path / "counts").rows('sum("count")', "1") == [(len(expected),)]


def test_spark_rows_that_do_not_fit_the_table_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(frame(spark, A), batch(A), tmp_path / "t")
    with pytest.raises(UsageError, match=r"the column .n. is .string., and in the table .* .long.: cast it"):
        write_delta(
            frame(spark, B).selectExpr("topic", "partition", "offset", "string(n) as n"), batch(B), tmp_path / "t"
        )
    assert DeltaLog(tmp_path / "t").rows() == records(A)


def test_an_iceberg_table_takes_what_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = SqlCatalog("tests", **where)
    try:
        rows = frame(spark, A, B).selectExpr("*", *(each for each in TYPES if " tiny" not in each))
        catalog.create_namespace("db")
        catalog.create_table("db.t", rows.limit(0).toArrow().schema)
        for ranges in ((A, B), (A, B), (A._replace(end=16),)):
            rows = frame(spark, *ranges).selectExpr("*", *(each for each in TYPES if " tiny" not in each))
            write_iceberg(rows, batch(*ranges), "db.t", catalog=catalog)
        found = catalog.load_table("db.t").scan().to_arrow().sort_by("offset").sort_by("partition").to_pylist()
    finally:
        catalog.close()
    wanted = records(A._replace(end=16), B)
    assert [(row["topic"], row["partition"], row["offset"], row["n"]) for row in found] == wanted
    assert {(row["at"].isoformat(), row["day"].isoformat(), str(row["money"]), row["bytes"]) for row in found} == {
        ("2026-01-02T03:04:05.123456+00:00", "2026-01-02", "1.50", b"abc")
    }
    assert {(str(row["list"]), str(row["struct"]), str(row["map"]), row["real"], row["nothing"]) for row in found} == {
        ("[1, None]", "{'a': 1, 'b': 'x'}", "[('k', 1.5)]", 1.5, None)
    }
