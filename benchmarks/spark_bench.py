"""Shared code of the benchmarks of Spark: servers and one session, the runners, their verdicts.

A runner reads TOPIC in batches of `rows` records, and calls `work` with each batch. zkcoord's runners are the driver
loop with either reader, and the streaming source. Spark's own runners are queries over its Kafka source, {foreachBatch,
noop} x {plain, tuned}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import verdict
from kafka_log import TOPIC
from verdict import OUT, Measure

from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper, connector_jars, spark_environment
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.spark import SparkConsumer, batches, register_source, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TUNED = {  # settings that make a native query faster with big batches
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "4194304",
    "kafka.fetch.max.bytes": "67108864",
}
SHARED = 5_000  # ranges with fewer offsets share a task of the Python reader
SHARED_LARGE = 50_000  # the same for runners named `_shared`; the connector reads so many offsets in some 30 ms
FORGET = {  # the connector keeps clients, and records that they have fetched: for 5 minutes, those of ended runs, too
    f"spark.kafka.consumer.{cache}.{setting}": value
    for cache in ("cache", "fetchedData.cache")
    for setting, value in (("timeout", "20s"), ("evictorThreadRunInterval", "5s"))
}
NATIVE = ("foreach", "noop", "foreach_tuned", "noop_tuned")
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"  # in Spark 4.0
LOOK_S = 0.5  # seconds between two questions to a measured query about its progress
Work = Callable[..., None]  # takes a DataFrame, and a batch or its number


@dataclass(frozen=True)
class Bench:
    """The servers and the session that every runner uses."""

    spark: SparkSession
    zookeeper: str
    bootstrap_servers: str
    scratch: Path


def to_nowhere(df: DataFrame, batch: object = None) -> None:
    """The work of most benchmarks: read every row, and write it to nowhere."""
    df.write.format("noop").mode("append").save()


def group_name(kind: str) -> str:
    """Return a name that no group had before."""
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def make_consumer(
    bench: Bench,
    rows: int,
    *,
    reader: Literal["kafka", "python"] = "kafka",
    starting: str = "earliest",
    group: str | None = None,
    announce: bool = True,
    shared: int = 0,
) -> SparkConsumer:
    """Return a Spark consumer. Without `group` it has a group of its own. Ranges of fewer than `shared` offsets share
    tasks.
    """
    return SparkConsumer(
        bench.spark,
        bench.zookeeper,
        bench.bootstrap_servers,
        group or group_name("loop"),
        [TOPIC],
        reader=reader,
        starting_offsets=starting,
        max_offsets_per_batch=rows,
        min_offsets_per_task=shared,
        announce=announce,
    )


def start_source(
    bench: Bench,
    rows: int,
    work: Work | None,
    starting: str = "earliest",
    group: str | None = None,
    *,
    of_ranges: bool = False,
    shared: int = 0,
) -> StreamingQuery:
    """Start a query over `readStream.format("zkcoord")`. Without `work` it writes to nowhere. Without `group` it has a
    group of its own.

    `of_ranges`: Spark's connector reads, in `batches`. Ranges of fewer than `shared` offsets share tasks.
    """
    rows_in = (
        bench.spark.readStream.format("zkcoord")
        .option("zookeeper", bench.zookeeper)
        .option("kafka.bootstrap.servers", bench.bootstrap_servers)
        .option("group", group or group_name("source"))
        .option("subscribe", TOPIC)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", str(rows))
        .option("minRecordsPerPartition", str(shared))
        .option("rows", "ranges" if of_ranges else "records")
        .load()
    )
    return start_query(bench, rows_in, batches(work or to_nowhere) if of_ranges else work)


def start_native(
    bench: Bench, rows: int, work: Work | None, *, tuned: bool, offsets: Mapping[str, str] | None = None
) -> StreamingQuery:
    """Start a query over Spark's own source. `offsets`: its options for partitions and offsets (default: all, from the
    beginning).

    Without `work` it writes to nowhere.
    """
    rows_in = (
        bench.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.bootstrap_servers)
        .option("maxOffsetsPerTrigger", str(rows))
        .options(**(offsets or {"subscribe": TOPIC, "startingOffsets": "earliest"}))
        .options(**(TUNED if tuned else {}))
        .load()
    )
    return start_query(bench, rows_in, work)


def start_query(bench: Bench, rows_in: DataFrame, work: Work | None) -> StreamingQuery:
    """Start it with a fresh checkpoint."""
    writer = rows_in.writeStream.option("checkpointLocation", str(bench.scratch / uuid.uuid4().hex))
    return (writer.format("noop") if work is None else writer.foreachBatch(work)).start()


@contextmanager
def checkpoint_files(bench: Bench, *, quick: bool) -> Iterator[None]:
    """Queries that start in the block write their checkpoint's files as Spark does by default, or with
    `QUICK_FILES`."""
    if quick:
        bench.spark.conf.set(MANAGER, QUICK_FILES)
    try:
        yield
    finally:
        bench.spark.conf.unset(MANAGER)


def await_query(query: Any, done: Callable[[], bool], timeout_s: float, look_s: float = 0.02) -> None:
    """Call `done` every `look_s` seconds until it is true. If the query ends before, raise the error that ended it."""
    pause = threading.Event()
    for _ in range(int(timeout_s / look_s)):
        if done():
            return
        if query.exception() is not None:
            raise query.exception()
        pause.wait(look_s)
    raise TimeoutError(f"the query was not there within {timeout_s} s: {query.lastProgress}")


def await_batches(query: Any, count: int, timeout_s: float) -> list[Any]:
    """Wait until a query has made more batches than `count`, stop it, and return Spark's progress of all its triggers.

    While the query works it is asked seldom, and only for the number of its last batch, which takes two calls of Java.
    PySpark reads the whole progress of a batch with hundreds of calls. These need some 14 ms of Python's processor
    time, and more in the JVM, which would make the batches slower.
    """
    java: Any = query._jsq
    try:
        await_query(
            query, lambda: (last := java.lastProgress()) is not None and last.batchId() >= count, timeout_s, LOOK_S
        )
    finally:
        query.stop()
    return list(query.recentProgress)


def conclude(name: str, raw: Mapping[str, object], measures: Sequence[Measure], json_file: Path | None) -> int:
    """Write the raw figures, print the measures; 0 when all goals are reached."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}_raw.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    return verdict.conclude(measures, {}, json_file)


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Programs that are started in the block write their standard error to `file`."""
    file.parent.mkdir(exist_ok=True)
    kept = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def start(stack: ExitStack, name: str, prepare: Callable[[str], None], heap: str = "2g") -> Bench:
    """Start servers, call `prepare(bootstrap servers)`, start a coordinator and Spark (`local[2]`, with this heap)."""
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkcoord-bench-")))
    zookeeper = stack.enter_context(EmbeddedZooKeeper(fsync=False, jvm_options=LONG_LIVED))
    kafka = stack.enter_context(EmbeddedKafka(zookeeper.hosts, heap="1g", jvm_options=LONG_LIVED))
    prepare(kafka.bootstrap_servers)
    serving = threading.Event()
    coordinator = Coordinator(zookeeper.hosts, on_serving=lambda number, epoch: serving.set())
    coordinator.start()
    stack.callback(coordinator.stop)
    assert serving.wait(60), coordinator.error
    with stderr_to(OUT / f"{name}.log"):  # a query that is stopped prints thousands of lines
        spark = spark_session(
            "zkcoord benchmark",
            jars=connector_jars(),
            environment=spark_environment(),
            log_level="OFF",
            config={"spark.driver.memory": heap, "spark.local.dir": str(scratch), **FORGET},
        )
    stack.callback(spark.stop)
    register_source(spark)
    return Bench(spark, zookeeper.hosts, kafka.bootstrap_servers, scratch)


def told(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
