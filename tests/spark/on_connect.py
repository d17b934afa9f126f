"""A consumer of a remote session, as a program: `python -m tests.spark.on_connect SERVER FOLDER ZOOKEEPER KAFKA TOPIC`.

It prints one line of JSON with all results. It is a process of its own, since a process with a classic session can have
no remote one.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from tests.spark.fakes import InThread
from tests.spark.on_stream import SQL
from tests.spark.together import DEADLINE_S, endless
from zkcoord.spark import (
    Batch,
    OffsetRange,
    SparkConsumer,
    batches,
    register_source,
    stream_batch,
    write_delta,
    write_sql,
)
from zkcoord.spark.meter import meter_of
from zkcoord.spark.ports import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBSERVED_TRIES = 10


def consumer_of(spark: SparkSession, place: tuple[str, str, str], group: str, **choices: Any) -> SparkConsumer:
    """Return a consumer of the whole topic, in a group of its own."""
    zookeeper, kafka, topic = place
    return SparkConsumer(spark, zookeeper, kafka, group, [topic], starting_offsets="earliest", **choices)


def read(spark: SparkSession, place: tuple[str, str, str], reader: Any, *, measure_bytes: bool) -> dict[str, Any]:
    """Read one batch; return its records, and the consumer's counters.

    Spark's server waits 100 ms for what it has observed, and else tells a remote session nothing. So if nothing was
    told on a busy machine, another group reads the same.
    """
    for attempt in range(OBSERVED_TRIES):
        found = read_once(spark, place, reader, f"read-{reader}-{attempt}", measure_bytes=measure_bytes)
        if not measure_bytes or found["rows"] is not None:
            break
    return found


def read_once(
    spark: SparkSession, place: tuple[str, str, str], reader: Any, group: str, *, measure_bytes: bool
) -> dict[str, Any]:
    """Read one batch as this group."""
    records: list[Any] = []
    reports: list[Report] = []

    def process(df: DataFrame, batch: Batch) -> None:
        records.extend(sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect()))

    choices: dict[str, Any] = {"reader": reader, "measure_bytes": measure_bytes, "on_report": reports.append}
    consumer_of(spark, place, group, **choices).run(process, max_batches=1)
    (report,) = reports
    return {"records": records, "rows": report.rows, "bytes": report.bytes, "offsets": report.offsets}


def cancel(spark: SparkSession, place: tuple[str, str, str]) -> dict[str, Any]:
    """Cancel a batch that never ends; the next run reads its records again.

    It is cancelled only when its tasks run. A server (4.0) that is interrupted while it plans may still start the job.
    The job's operation is then over, so nothing can end the job.
    """
    consumer = consumer_of(spark, place, "cancelled")
    hanging, begun = threading.Event(), threading.Event()
    errors: list[str] = []
    counts: list[int] = []

    def hang(df: DataFrame, batch: Batch) -> None:
        hanging.set()
        try:
            endless(df)
        except Exception as error:
            errors.append(str(error))
            raise

    def seen(stages: object, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if hanging.is_set() and inflight_tasks:
            begun.set()

    spark.registerProgressHandler(seen)
    running = InThread(lambda: consumer.run(hang))
    assert begun.wait(DEADLINE_S)
    spark.removeProgressHandler(seen)
    consumer.stop(cancel=True)
    first = running.result()
    second = consumer.run(lambda df, batch: counts.append(df.count()), max_batches=1)
    return {
        "batches": [first, second],
        "counts": counts,
        "lost": consumer.metrics.lost,
        "cancelled": ["cancel" in error.lower() for error in errors],
    }


def into_tables(spark: SparkSession, folder: str) -> dict[str, Any]:
    """Write a batch of five rows into a Delta table below a path, and from two tasks into SQLite, twice each; return
    also how the session then writes timestamps."""
    batch = Batch(id="b", seq=0, generation=1, ranges=(OffsetRange("clicks", 0, 0, 5),), group="etl")
    rows = spark.range(5).selectExpr("'clicks' AS topic", "0 AS partition", "id AS offset", "now() AS at")
    counts = [write_delta(rows, batch, f"{folder}/table") for _ in range(2)]
    connect = partial(sqlite3.connect, f"{folder}/tables.db", timeout=DEADLINE_S)
    with closing(connect()) as connection:
        connection.executescript(SQL)
    numbers = rows.drop("at")  # SQLite takes no times
    sql = [write_sql(numbers, batch, connect, "clicks", offsets_table="ends", tasks=2) for _ in range(2)]
    return {"counts": counts, "sql": sql, "setting": spark.conf.get("spark.sql.parquet.outputTimestampType")}


def gets_on(spark: SparkSession) -> list[bool]:
    """Return whether the activity has changed: after an operation, after nothing, after another operation."""
    meter = meter_of(spark, measure_bytes=False)
    looks = []
    for rows in (0, 10, 0, 10):
        if rows:
            meter.watch(spark.range(rows)).count()
        looks.append(meter.activity("any"))
    return [one != other for one, other in pairwise(looks)]


def stream(spark: SparkSession, place: tuple[str, str, str], folder: str) -> dict[str, Any]:
    """Run a query of `format("zkcoord")` twice. Its function for each batch runs in the server."""
    register_source(spark)

    def write(df: DataFrame, number: int) -> None:
        held = stream_batch(df.sparkSession, f"{folder}/checkpoint", number)
        spans = ",".join(f"{each.partition}:{each.start}:{each.end}" for each in held.ranges)
        df.selectExpr("partition", "offset", f"'{spans}' as spans").write.parquet(f"{folder}/rows/batch={number}")

    def run() -> list[Any]:
        writer = (
            rows_of(spark, place, "connect-stream")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{folder}/checkpoint")
        )
        query = writer.trigger(availableNow=True).start()
        ended = query.awaitTermination(DEADLINE_S)
        error = query.exception()
        return [ended, None if error is None else str(error)]

    ran = [run()]
    fill(*place[1:])
    ran.append(run())
    found = spark.read.parquet(f"{folder}/rows").selectExpr("batch", "partition", "offset", "spans").collect()
    return {"ran": ran, "rows": sorted([row.batch, row.partition, row.offset, row.spans] for row in found)}


def refused(spark: SparkSession, place: tuple[str, str, str], folder: str) -> str:
    """Run a query of ranges; return the error that ends it."""
    rows = rows_of(spark, place, "connect-ranges", rows="ranges")
    writer = rows.writeStream.foreachBatch(batches(lambda df, batch: None))
    query = writer.option("checkpointLocation", f"{folder}/ranges").start()
    try:
        query.awaitTermination(DEADLINE_S)
    except Exception as error:
        return str(error)
    return "it was not refused"


def rows_of(spark: SparkSession, place: tuple[str, str, str], group: str, rows: str = "records") -> DataFrame:
    """Return the topic as a stream."""
    zookeeper, kafka, topic = place
    return (
        spark.readStream.format("zkcoord")
        .option("zookeeper", zookeeper)
        .option("kafka.bootstrap.servers", kafka)
        .option("group", group)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("joinWaitMs", 60_000)
        .option("rows", rows)
        .load()
    )


def leave_running(spark: SparkSession, place: tuple[str, str, str], folder: str) -> None:
    """Start a query, and do not stop it."""
    writer = rows_of(spark, place, "connect-left").writeStream.format("noop")
    writer.option("checkpointLocation", f"{folder}/left").trigger(processingTime="0 seconds").start()


def fill(kafka: str, topic: str) -> None:
    """Write three more records into partition 1."""
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(3):
        producer.produce(topic, value=b"%d" % number, partition=1)
    assert producer.flush(DEADLINE_S) == 0


def main(server: str, folder: str, *place: str) -> None:
    """Run everything in turn; then end without closing the session, like a client that is killed."""
    from pyspark.sql import SparkSession

    zookeeper, kafka, topic = place
    spark = SparkSession.builder.remote(server).getOrCreate()
    try:
        at = (zookeeper, kafka, topic)
        told: dict[str, Any] = {
            "kafka": read(spark, at, "kafka", measure_bytes=False),
            "python": read(spark, at, "python", measure_bytes=True),
            "cancel": cancel(spark, at),
            "gets_on": gets_on(spark),
            "stream": stream(spark, at, folder),
            "refused": refused(spark, at, folder),
            "table": into_tables(spark, folder),
        }
        leave_running(spark, at, folder)
    except BaseException:
        spark.stop()
        raise
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
