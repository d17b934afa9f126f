"""The sinks of tables on a real Spark session: its types, its SQL, and its Python workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, Schema
from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.sinks.frames import TYPES as FRAME_TYPES
from tests.spark.sinks.frames import A, B, DeltaLog, batch, records
from tests.spark.sinks.s3_server import BUCKET, S3, arrow_options
from zkcoord.errors import UsageError
from zkcoord.spark import write_delta, write_iceberg, write_parquet_ranges
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks.data_files import DRAFTS
from zkcoord.spark.sinks.spark_writer import counted

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


@pytest.mark.parametrize(
    ("query", "split", "expected"),
    [
        (lambda rows: rows, (), 12_345),
        (lambda rows: rows, ("k",), 12_345),
        (lambda rows: rows.groupBy("k").count(), (), 3),
        (lambda rows: rows.join(rows.limit(2).select("id"), "id"), (), 2),
        (lambda rows: rows.where("id < 0"), (), 0),
    ],
)
def test_sparks_writer_tells_how_many_rows_it_wrote(
    spark: SparkSession, tmp_path: Path, query: Any, split: tuple[str, ...], expected: int
) -> None:
    """Whatever else is written at the same time, and however many jobs that takes."""
    found = query(spark.range(0, 12_345, 1, 3).selectExpr("id", "id % 3 as k"))
    with counted(found) as (rows, count):
        with counted(spark.range(7)) as (others, count_others):
            others.write.parquet(str(tmp_path / "others"))
        rows.write.partitionBy(*split).parquet(str(tmp_path / "t"))
        assert (count(), count_others()) == (expected, 7)


def test_a_file_of_a_table_has_times_in_microseconds_and_tells_its_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own default has no statistics."""
    setting = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(setting)
    rows = frame(spark, A, B).selectExpr("*", TYPES[0], "array(timestamp'2026-01-02 03:04:05') as times")
    write_delta(rows, batch(A, B), tmp_path / "t")
    assert spark.conf.get(setting) == before == "INT96"
    found = DeltaLog(tmp_path / "t")
    for path, told in found.files.items():
        footer = pyarrow.parquet.read_metadata(tmp_path / "t" / path)
        kinds = {footer.schema.column(at).path: footer.schema.column(at).physical_type for at in range(6)}
        assert (kinds["at"], kinds["times.list.element"]) == ("INT64", "INT64")
        assert json.loads(told["stats"])["minValues"]["at"].startswith("2026-01-02T")
    assert {each.name for each in (tmp_path / "t").iterdir() if each.is_dir()} == {"_delta_log", DRAFTS}
    assert not [*(tmp_path / "t" / DRAFTS).iterdir()]


def test_f199_names_of_folders_are_taken_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Blanks and umlauts in the path of a table, percent signs in that of files by range: all rows are there."""
    rows = frame(spark, A, B)
    assert write_delta(rows, batch(A, B), tmp_path / "a b ü") == 7
    assert DeltaLog(tmp_path / "a b ü").rows() == records(A, B)
    written = write_parquet_ranges(rows.repartitionByRange(2, "partition"), batch(A, B), tmp_path / "a b%20ü")
    assert [*written] == [("clicks-0-10-14.parquet", 4), ("clicks-1-5-8.parquet", 3)]


def test_a_range_is_one_file_however_large_the_sessions_files_are(spark: SparkSession, tmp_path: Path) -> None:
    rows, limit = frame(spark, A, B).repartitionByRange(2, "partition"), "spark.sql.files.maxRecordsPerFile"
    spark.conf.set(limit, 1)
    try:
        written = write_parquet_ranges(rows, batch(A, B), tmp_path / "ranges")
        assert write_delta(rows, batch(A, B), tmp_path / "table") == 7
    finally:
        spark.conf.unset(limit)
    assert [*written] == [("clicks-0-10-14.parquet", 4), ("clicks-1-5-8.parquet", 3)]
    assert len(DeltaLog(tmp_path / "table").files) == 7


PARTITIONS = {  # a column by which a table is partitioned: its values in Spark's SQL, and as Delta spells them
    "word": (["'a b/ü=%:#'", "'__x__'", "''", "null"], ["a b/ü=%:#", "__x__", None, None]),
    "day": (["date'2026-01-02'", "null", "date'1999-12-31'", "null"], ["2026-01-02", None, "1999-12-31", None]),
    "even": (["true", "false", "null", "true"], ["true", "false", None, "true"]),
    "money": (["1.50", "0.25", "null", "100.00"], ["1.50", "0.25", None, "100.00"]),
    "at": (
        ["timestamp'2026-01-02 03:04:05.123456 UTC'", "null", "timestamp'2026-07-01 00:00:00 UTC'", "null"],
        ["2026-01-02 03:04:05.123456", None, "2026-07-01 00:00:00.000000", None],
    ),
}


@pytest.mark.parametrize("column", PARTITIONS)
def test_a_table_partitioned_by_any_column_says_in_its_log_what_the_rows_had(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    values, expected = PARTITIONS[column]
    cases = " ".join(f"WHEN {A.start + number} THEN {value}" for number, value in enumerate(values))
    rows = frame(spark, A).selectExpr("*", f"CASE offset {cases} END AS {column}")
    assert write_delta(rows, batch(A), tmp_path / "t", partition_by=[column]) == 4
    found = DeltaLog(tmp_path / "t")
    told = {}
    for path, file in found.files.items():
        table = pyarrow.parquet.read_table(tmp_path / "t" / path, partitioning=None)
        assert column not in table.column_names
        told |= dict.fromkeys(table["offset"].to_pylist(), file["partitionValues"][column])
    assert [told[A.start + number] for number in range(4)] == expected
    read = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert read.num_rows == 4


def test_a_null_in_a_column_that_may_have_none_fails_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [*FRAME_TYPES, pa.field("must", pa.list_(pa.int32()), nullable=False)]
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(pa.schema(kinds)))
    rows = frame(spark, A).selectExpr("*", "CASE WHEN offset = 12 THEN null ELSE array(1, null) END AS must")
    with pytest.raises(UsageError, match='the column "must" has a null, and in the table it may not be null'):
        write_delta(rows, batch(A), tmp_path / "t")
    assert write_delta(rows.where("must IS NOT NULL"), batch(A), tmp_path / "t") == 3
    assert {str(row["must"]) for row in DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()} == {"[1, None]"}


@pytest.mark.s3
def test_sparks_tasks_put_ranges_into_an_object_store(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    folder, options = f"s3a://{BUCKET}/{tmp_path.name}", dict(arrow_options(s3.endpoint))
    rows = frame(spark, A, B).selectExpr("*", *TYPES)
    with pytest.raises(UsageError, match="a range was written by several tasks"):
        write_parquet_ranges(rows, batch(A, B), folder, storage_options=options)
    together = rows.repartition(2, "topic", "partition")
    for _ in range(2):
        written = write_parquet_ranges(together, batch(A, B, replayed=True), folder, storage_options=options)
        assert [*written] == [("clicks-0-10-14.parquet", 4), ("clicks-1-5-8.parquet", 3)]
    assert s3.keys(tmp_path.name) == [each.file for each in written]
    read = spark.read.parquet(str(s3.download(tmp_path.name, tmp_path / "read"))).orderBy("partition", "offset")
    assert read.select(rows.columns).collect() == rows.orderBy("partition", "offset").collect()
    assert read.select(rows.columns).schema.simpleString() == rows.schema.simpleString()


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


def test_an_iceberg_tables_empty_texts_are_not_in_the_partition_of_nulls(spark: SparkSession, tmp_path: Path) -> None:
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    texts = "CASE offset % 3 WHEN 0 THEN '' WHEN 1 THEN null ELSE '__HIVE_DEFAULT_PARTITION__' END"
    rows = frame(spark, A).selectExpr("*", f"{texts} AS text")
    catalog = SqlCatalog("tests", **where)
    try:
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", rows.limit(0).toArrow().schema)
        with table.update_spec() as change:
            change.add_identity("text")
        write_iceberg(rows, batch(A), "db.t", catalog=catalog)
        table = catalog.load_table("db.t")
        found = [
            table.scan(row_filter=condition).to_arrow()["offset"].to_pylist()
            for condition in ("text = ''", "text is null", "text = '__HIVE_DEFAULT_PARTITION__'")
        ]
    finally:
        catalog.close()
    offsets = range(A.start, A.end)
    assert [sorted(each) for each in found] == [[n for n in offsets if n % 3 == rest] for rest in range(3)]
