"""What the benchmarks of Spark share: servers and one session, the runners, their verdicts.

A runner reads TOPIC with batches of `rows` records and hands each batch to `work`. Ours: the driver loop with either
reader, and the streaming source. Spark's own: queries over its Kafka source, {foreachBatch, noop} x {plain, tuned}.
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

TUNED = {  # what helps a native query with big batches
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "4194304",
    "kafka.fetch.max.bytes": "67108864",
}
SHARED = 5_000  # offsets below which ranges share a task of the Python reader
SHARED_BY_CONNECTOR = 50_000  # ... of the connector, which reads so many in some 30 ms
NATIVE = ("foreach", "noop", "foreach_tuned", "noop_tuned")
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"  # in Spark 4.0
LOOK_S = 0.5  # how often a query that is measured is asked how far it is
Work = Callable[..., None]  # of a DataFrame, and of a batch or its number


@dataclass(frozen=True)
class Bench:
    """What every runner works on."""

    spark: SparkSession
    zookeeper: str
    bootstrap_servers: str
    scratch: Path


def to_nowhere(df: DataFrame, batch: object = None) -> None:
    """The work of most benchmarks: every row is read and written to nothing."""
    df.write.format("noop").mode("append").save()


def group_name(kind: str) -> str:
    """Of a group that nobody had before."""
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
    """A Spark consumer. Without `group` it is alone in one of its own. Ranges of less than `shared` offsets share
    tasks."""
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
    """A query over `readStream.format("zkcoord")`; to nowhere without `work`, without `group` in one of its own.

    `of_ranges`: Spark's connector reads, in `batches`. Ranges of less than `shared` offsets share tasks.
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
    """A query over Spark's own source; `offsets` are its options of what is read from where (all, from the beginning).

    To nowhere without `work`.
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
    """Queries that start meanwhile write their checkpoint's files as Spark does by itself, or by `QUICK_FILES`."""
    if quick:
        bench.spark.conf.set(MANAGER, QUICK_FILES)
    try:
        yield
    finally:
        bench.spark.conf.unset(MANAGER)


def await_query(query: Any, done: Callable[[], bool], timeout_s: float, look_s: float = 0.02) -> None:
    """Wait until `done`, asked for every `look_s`; raises what ended the query before."""
    pause = threading.Event()
    for _ in range(int(timeout_s / look_s)):
        if done():
            return
        if query.exception() is not None:
            raise query.exception()
        pause.wait(look_s)
    raise TimeoutError(f"the query was not there within {timeout_s} s: {query.lastProgress}")


def await_batches(query: Any, count: int, timeout_s: float) -> list[Any]:
    """Wait until a query has made more batches than `count`, stop it, and return what Spark told of all its triggers.

    A query at work is asked seldom, and for the number of its last batch alone, in two calls of Java: PySpark takes
    what Spark tells of a batch apart in hundreds, some 14 ms of Python's processor time and more in the JVM, which the
    batches lack.
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
    """What is started meanwhile writes its standard error to `file`."""
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
    """Servers, what `prepare(bootstrap servers)` makes, a coordinator, Spark (`local[2]`, with so much heap)."""
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
            config={"spark.driver.memory": heap, "spark.local.dir": str(scratch)},
        )
    stack.callback(spark.stop)
    register_source(spark)
    return Bench(spark, zookeeper.hosts, kafka.bootstrap_servers, scratch)


def told(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
