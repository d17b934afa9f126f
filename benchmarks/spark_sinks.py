"""Rows per second and fixed cost of a batch for each sink, against Spark's own df.write.parquet.

    python benchmarks/spark_sinks.py [--quick] [--s3] [--postgres] [--streams] [--json FILE]

One Spark (`local[2]`), no Kafka: batches of 100-byte records in 8 tasks, one for each range, out of Spark's memory, so
that only the sink is measured. `parquet` is `df.write.parquet` in append mode. `ranges` is `write_parquet_ranges` below
a path, `ranges_tasks` the same below `file://`, where Python tasks write as they do into an object store; `delta` and
`iceberg` append to tables on the local disk. `sql` and `sql_tasks` write to SQLite, in one transaction and from two
tasks (up to 100 thousand rows). In each round every sink writes one batch, in turns; compared are medians. The first
round does not count.

With `--s3`, the same in an object store: `s3_parquet` is `df.write.parquet("s3a://...")` through Hadoop's client and
its usual committer; `s3_ranges`, `s3_delta` and `s3_iceberg` write there from Python tasks. The store is the tests'
moto, one process on the loopback.

With `--postgres`, `postgres` and `postgres_tasks` write to PostgreSQL, in one transaction and from two tasks (up to 100
thousand rows). The server is the tests', without fsync.

With `--streams`, Structured Streaming reads the same records out of Parquet files and appends them to a Delta table: by
Delta's own sink (`delta-spark`, fetched), and by `write_delta` in `foreachBatch`; compared are medians of whole
triggers, without the first. Then Spark runs with Delta's jars and its extension.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `SINK_rows_N` is parquet's batch
time over the sink's at N rows a batch (at least the goal), `SINK_percent_N` what the sink costs beyond Spark's own
writer, in percent of that one's time (no goal), `SINK_fixed_cost` its time for 10 rows a range over parquet's (no
goal). Those of an object store are over `s3_parquet`, those of `postgres_tasks` over `postgres`. `stream_rows_N` is the
native stream's trigger over ours (goal 1), `stream_percent_N` what ours costs beyond it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_bench import conclude, stderr_to, told
from verdict import OUT, Measure, arguments

from zkcoord.embedded import delta_jars, s3a_jars, spark_environment
from zkcoord.spark import Batch, OffsetRange, spark_session, write_delta, write_iceberg, write_parquet_ranges, write_sql
from zkcoord.spark.ranges import batch_id

if TYPE_CHECKING:
    import sqlite3

    from pyiceberg.catalog.sql import SqlCatalog
    from pyspark.sql import DataFrame, SparkSession

TASKS = 8
RECORD_BYTES = 100
TINY = 10 * TASKS
SIZES = {TINY: 15, 10_000: 12, 100_000: 12, 1_000_000: 8}  # rows a batch -> rounds
QUICK = {TINY: 4, 100_000: 3}
SQL_MAX = 100_000  # the largest batch for databases; larger ones only take longer
STREAMED = {100_000: 8, 1_000_000: 5}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE {0} (topic, "partition", "offset", value, timestamp);
CREATE TABLE {0}_ends (topic, "partition", next_offset, PRIMARY KEY (topic, "partition"));
"""
POSTGRES_TABLES = """
DROP TABLE IF EXISTS {0}, {0}_ends;
CREATE TABLE {0} (topic text, "partition" int, "offset" bigint, value bytea, timestamp timestamptz);
CREATE TABLE {0}_ends (topic text, "partition" int, next_offset bigint, PRIMARY KEY (topic, "partition"));
"""
GOALS = {("delta", 100_000): 1.0, ("delta", 1_000_000): 1.0}
Write = Callable[["DataFrame", Batch], object]
Sinks = Callable[[Path, "DataFrame"], dict[str, Write]]


def records(spark: SparkSession, rows: int) -> DataFrame:
    """Return the records of a batch, in Spark's memory. All records of a task have the same partition number."""
    text = f"rpad(concat(md5(cast(id as string)), md5(cast(id * 7 as string))), {RECORD_BYTES}, 'x')"
    columns = ("'clicks' as topic", "spark_partition_id() as partition", f"id % {rows // TASKS} as offset")
    df = spark.range(0, rows, 1, TASKS).selectExpr(*columns, f"encode({text}, 'utf-8') as value", "now() as timestamp")
    df.persist().count()
    return df


def batch_of(df: DataFrame, rows: int, number: int) -> tuple[DataFrame, Batch]:
    """Return the records as batch `number`, with ranges that no batch had before."""
    each = rows // TASKS
    ranges = tuple(OffsetRange("clicks", task, number * each, (number + 1) * each) for task in range(TASKS))
    moved = df.selectExpr("topic", "partition", f"offset + {number * each} as offset", "value", "timestamp")
    return moved, Batch(id=batch_id(ranges), seq=number, generation=1, ranges=ranges, group="bench")


def connected(file: str) -> sqlite3.Connection:
    """Return a connection. Workers import this module, so they can store times, too."""
    import sqlite3

    return sqlite3.connect(file, timeout=60)


def catalog_with(df: DataFrame, folder: Path, warehouse: str, **options: str) -> SqlCatalog:
    """Return a catalog with the empty table db.t."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse, **options)
    catalog.create_namespace("db")
    catalog.create_table("db.t", df.limit(0).toArrow().schema)
    return catalog


def sinks(folder: Path, df: DataFrame) -> dict[str, Write]:
    """Return all sinks of the local disk, each with paths of its own."""
    catalog = catalog_with(df, folder, f"file://{folder}/warehouse")
    connect = partial(connected, str(folder / "sql.db"))
    for table in ("sql", "sql_tasks"):
        connect().executescript(TABLES.format(table))
    return {
        "parquet": lambda rows, batch: rows.write.mode("append").parquet(str(folder / "parquet")),
        "ranges": lambda rows, batch: write_parquet_ranges(rows, batch, folder / "ranges"),
        "ranges_tasks": lambda rows, batch: write_parquet_ranges(rows, batch, f"file://{folder}/ranges_tasks"),
        "delta": lambda rows, batch: write_delta(rows, batch, folder / "delta"),
        "iceberg": lambda rows, batch: write_iceberg(rows, batch, "db.t", catalog=catalog),
        "sql": lambda rows, batch: write_sql(rows, batch, connect, "sql", offsets_table="sql_ends"),
        "sql_tasks": lambda rows, batch: write_sql(
            rows, batch, connect, "sql_tasks", offsets_table="sql_tasks_ends", tasks=2
        ),
    }


def sinks_in_s3(endpoint: str, folder: Path, df: DataFrame) -> dict[str, Write]:
    """Return all sinks of an object store, each with keys of its own."""
    from tests.spark.sinks.s3_server import BUCKET, arrow_options, delta_options, iceberg_options

    at = f"{BUCKET}/{folder.name}"
    of_arrow, of_delta = arrow_options(endpoint), delta_options(endpoint)
    catalog = catalog_with(df, folder, f"s3://{at}/warehouse", **iceberg_options(endpoint))
    return {
        "s3_parquet": lambda rows, batch: rows.write.mode("append").parquet(f"s3a://{at}/parquet"),
        "s3_ranges": lambda rows, batch: write_parquet_ranges(
            rows, batch, f"s3a://{at}/ranges", storage_options=of_arrow
        ),
        "s3_delta": lambda rows, batch: write_delta(rows, batch, f"s3://{at}/delta", storage_options=of_delta),
        "s3_iceberg": lambda rows, batch: write_iceberg(rows, batch, "db.t", catalog=catalog),
    }


def connected_to_postgres(where: str) -> Any:
    """Return a connection to PostgreSQL; workers import this module."""
    import psycopg

    return psycopg.connect(where)


def sinks_in_postgres(where: str, folder: Path, df: DataFrame) -> dict[str, Write]:
    """Return the sinks of a database, with new tables."""
    connect, found = partial(connected_to_postgres, where), {}
    for table, tasks in (("postgres", 0), ("postgres_tasks", 2)):
        with connect() as connection:
            connection.execute(POSTGRES_TABLES.format(table))
        settings: dict[str, Any] = {"offsets_table": f"{table}_ends", "placeholder": "%s", "tasks": tasks}
        found[table] = partial(write_sql, connect=connect, table=table, **settings)
    return found


def s3a_settings(endpoint: str) -> dict[str, str]:
    """Return Spark's settings for the store at this address."""
    settings = {"endpoint": endpoint, "endpoint.region": "us-east-1", "path.style.access": "true"}
    settings |= {"access.key": "tests", "secret.key": "tests", "connection.ssl.enabled": "false"}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def run(spark: SparkSession, scratch: Path, sizes: dict[int, int], sinks: Sinks) -> dict[str, dict[int, list[float]]]:
    """Return the milliseconds of every batch, by sink and rows of a batch."""
    times: dict[str, dict[int, list[float]]] = {}
    for rows, rounds in sizes.items():
        df = records(spark, rows)
        folder = scratch / uuid.uuid4().hex
        folder.mkdir()
        writers = {name: each for name, each in sinks(folder, df).items() if rows <= SQL_MAX or "sql" not in name}
        for at in range(rounds + 1):
            for name in writers if at % 2 else reversed(writers):
                ms = timed(writers[name], *batch_of(df, rows, at))
                if at:
                    times.setdefault(name, {}).setdefault(rows, []).append(ms)
        for name in writers:
            told(f"{rows:>9,} rows {name:<14} {statistics.median(times[name][rows]):8.1f} ms")
        df.unpersist()
        shutil.rmtree(folder)
    return times


def timed(write: Write, df: DataFrame, batch: Batch) -> float:
    """Return the milliseconds of one batch."""
    began_ns = time.monotonic_ns()
    write(df, batch)
    return (time.monotonic_ns() - began_ns) / 1e6


def streams(spark: SparkSession, scratch: Path, sizes: dict[int, int]) -> dict[int, dict[str, list[float]]]:
    """Return the milliseconds of every trigger that appends to a Delta table, by rows of a batch, for the native sink
    and for zkcoord's."""
    times: dict[int, dict[str, list[float]]] = {}
    for rows, batches in sizes.items():
        place = scratch / uuid.uuid4().hex
        df = records(spark, rows)
        df.write.parquet(str(place / "once"))
        (place / "all").mkdir()
        for at in range(batches + 1):
            for file in (place / "once").glob("*.parquet"):
                os.link(file, place / "all" / f"{at}-{file.name}")
        found = times[rows] = {}
        for name in ("native", "ours"):
            rows_in = spark.readStream.schema(df.schema).option("maxFilesPerTrigger", TASKS).parquet(str(place / "all"))
            out = rows_in.writeStream.option("checkpointLocation", str(place / f"checkpoint-{name}"))
            out = out.format("delta") if name == "native" else out.foreachBatch(partial(append, place / "table", rows))
            query = out.trigger(availableNow=True).start(str(place / "native") if name == "native" else None)
            query.awaitTermination()
            done = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
            assert len(done) == batches + 1, query.recentProgress
            found[name] = [*map(float, done[1:])]
            told(f"stream {rows:>9,} rows {name:<14} {statistics.median(found[name]):8.1f} ms a trigger")
        df.unpersist()
    return times


def append(table: Path, rows: int, df: DataFrame, number: int) -> None:
    """Write with zkcoord's sink, in `foreachBatch`."""
    write_delta(*batch_of(df, rows, number), table)


def stream_verdict(times: dict[int, dict[str, list[float]]]) -> list[Measure]:
    """The ratios to Delta's own sink."""
    measures = []
    for rows, by in times.items():
        native, ours = (statistics.median(by[name]) for name in ("native", "ours"))
        measures.append(Measure(f"stream_rows_{rows}", native / ours, 1.0))
        measures.append(Measure(f"stream_percent_{rows}", 100 * (ours / native - 1)))
    return measures


def verdict(times: dict[str, dict[int, list[float]]], own_name: str = "parquet") -> list[Measure]:
    """The ratios to Spark's own writer, or another one, in the same place."""
    medians = {name: {rows: statistics.median(found) for rows, found in by.items()} for name, by in times.items()}
    own = medians.pop(own_name, {})
    measures = []
    for name, by in medians.items():
        for rows, ms in by.items():
            if rows == TINY:
                measures.append(Measure(f"{name}_fixed_cost", ms / own[rows], at_most=True))
                continue
            measures.append(Measure(f"{name}_rows_{rows}", own[rows] / ms, GOALS.get((name, rows))))
            measures.append(Measure(f"{name}_percent_{rows}", 100 * (ms / own[rows] - 1)))
    return measures


def main() -> int:
    """The program."""
    parser = arguments(__doc__)
    parser.add_argument("--s3", action="store_true", help="write into an object store, too")
    parser.add_argument("--postgres", action="store_true", help="write to PostgreSQL, too")
    parser.add_argument("--streams", action="store_true", help="compare with Delta's own streaming sink, too")
    chosen = parser.parse_args()
    config: dict[str, Any] = {"spark.driver.memory": "2g", **(DELTA if chosen.streams else {})}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkcoord-bench-")))
        sys.path.append(str(Path(__file__).parents[1]))
        if chosen.postgres:
            from tests.spark.postgres import postgres_server

            database = stack.enter_context(postgres_server())
        if chosen.s3:
            from tests.spark.sinks.s3_server import s3_server

            os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = "100000"  # larger objects are on its disk
            endpoint = stack.enter_context(s3_server()).endpoint
            config |= s3a_settings(endpoint)
        with stderr_to(OUT / "spark_sinks.log"):
            spark = spark_session(
                "zkcoord benchmark",
                jars=(*(delta_jars() if chosen.streams else ()), *(s3a_jars() if chosen.s3 else ())),
                environment=spark_environment(),
                log_level="OFF",
                config={**config, "spark.local.dir": str(scratch)},
            )
        stack.callback(spark.stop)
        sizes = QUICK if chosen.quick else SIZES
        times = run(spark, scratch, sizes, sinks)
        in_s3 = run(spark, scratch, sizes, partial(sinks_in_s3, endpoint)) if chosen.s3 else {}
        in_database = {}
        if chosen.postgres:
            small = {rows: rounds for rows, rounds in sizes.items() if rows <= SQL_MAX}
            in_database = run(spark, scratch, small, partial(sinks_in_postgres, database))
        streamed = streams(spark, scratch, {100_000: 3} if chosen.quick else STREAMED) if chosen.streams else {}
    measures = [*verdict(times), *verdict(in_s3, "s3_parquet"), *verdict(in_database, "postgres")]
    raw = {"ms": {**times, **in_s3, **in_database}, "streams_ms": streamed}
    return conclude("spark_sinks", raw, measures + stream_verdict(streamed), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
