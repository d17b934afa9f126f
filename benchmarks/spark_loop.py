"""Rows per second and fixed cost of the driver loop, against Spark's own structured streaming from the same topic.

    python benchmarks/spark_loop.py [--quick] [--json FILE]

Embedded ZooKeeper and Kafka, a real coordinator, one Spark (`local[2]`, one JVM, the same settings for all), 8
partitions of 100-byte records, a write to nowhere. In each round and for each batch size every runner reads the topic
from its beginning, one after the other: `loop` is a whole SparkConsumer in a group of its own, with its membership and
its commits; the native ones are queries with a fresh checkpoint, {foreachBatch, noop} x {plain, tuned consumer}. A
batch's time is what passes from one batch's beginning to the next one's; the first batch of each run does not count.
Compared are medians over all rounds, with the better native one. Raw times: benchmarks/out/spark_loop.json.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `rows_N` is native's batch time
over the loop's at N rows a batch (at least the goal), `fixed_cost` the loop's over native's for 80 rows (at most).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_log import TOPIC, fill

from zkcoord.coordinator import Coordinator
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper, connector_jars, spark_environment
from zkcoord.spark import Batch, SparkConsumer, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUT = Path(__file__).parent / "out"
PARTITIONS = 8
MARGIN = 1_600_000  # records that nobody reads: near the log's end a native query waits for more, up to 500 ms
TINY = 80
GOALS = {10_000: 1.8, 100_000: 1.3, 1_000_000: 1.0}  # native's time over the loop's, at least
GOAL_FIXED = 0.5  # the loop's time over native's, at most
DEADLINE_S = 600
TUNED = {  # what helps a native query with big batches
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "4194304",
    "kafka.fetch.max.bytes": "67108864",
}


@dataclass(frozen=True)
class Bench:
    """What every runner works on."""

    spark: SparkSession
    zookeeper: str
    bootstrap_servers: str
    scratch: Path


@dataclass(frozen=True)
class Size:
    """Rows a batch; batches that count in a round; rounds."""

    rows: int
    batches: int
    rounds: int


FULL = (Size(10_000, 10, 4), Size(100_000, 8, 4), Size(1_000_000, 6, 4), Size(TINY, 10, 4))
QUICK = (Size(10_000, 3, 1), Size(100_000, 2, 1), Size(1_000_000, 1, 1), Size(TINY, 3, 1))
WARM = Size(TINY, 4, 1)  # before anything counts: the JVM compiles what all runners use
FULL_NATIVE = ("foreach", "noop", "foreach_tuned", "noop_tuned")
QUICK_NATIVE = ("foreach", "noop_tuned")


def to_nowhere(df: DataFrame, batch: object = None) -> None:
    """The work: every row is read and written to nothing."""
    df.write.format("noop").mode("append").save()


def run_loop(bench: Bench, size: Size) -> list[float]:
    """Milliseconds of each batch of a Spark consumer."""
    began: list[float] = []

    def process(df: DataFrame, batch: Batch) -> None:
        began.append(time.perf_counter())  # the batch before is committed, this one is planned
        to_nowhere(df)

    consumer = SparkConsumer(
        bench.spark,
        bench.zookeeper,
        bench.bootstrap_servers,
        f"loop-{uuid.uuid4().hex[:8]}",
        [TOPIC],
        starting_offsets="earliest",
        max_offsets_per_batch=size.rows,
    )
    consumer.run(process, max_batches=size.batches + 2)
    return between_ms(began)


def run_native(bench: Bench, size: Size, name: str) -> list[float]:
    """Milliseconds of each batch of a streaming query: from one trigger's start to the next one's."""
    source = (
        bench.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(size.rows))
        .options(**(TUNED if name.endswith("_tuned") else {}))
        .load()
    )
    writer = source.writeStream.option("checkpointLocation", str(bench.scratch / uuid.uuid4().hex))
    query = (writer.foreachBatch(to_nowhere) if name.startswith("foreach") else writer.format("noop")).start()
    try:
        began = await_triggers(query, size)
    finally:
        query.stop()
    return between_ms(began)


def between_ms(began: list[float]) -> list[float]:
    """How long each batch took, without the first one, in which readers are made, and the last."""
    return [1000 * (later - earlier) for earlier, later in pairwise(began[1:])]


def await_triggers(query: Any, size: Size) -> list[float]:
    """When each trigger began, in seconds; enough for the batches that count, all of full size."""
    end, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while time.monotonic() < end:
        done = [each for each in query.recentProgress if each.numInputRows > 0]
        if len(done) >= size.batches + 2:
            done = done[: size.batches + 2]
            assert all(each.numInputRows == size.rows for each in done), [each.numInputRows for each in done]
            return [datetime.fromisoformat(each.timestamp).timestamp() for each in done]
        if query.exception() is not None:
            raise query.exception()
        pause.wait(0.05)
    raise TimeoutError(f"{size.batches + 2} batches of {size.rows} rows took more than {DEADLINE_S} s")


def measure(bench: Bench, sizes: tuple[Size, ...], natives: tuple[str, ...]) -> dict[str, dict[int, list[float]]]:
    """Runner -> rows a batch -> milliseconds of each batch. The runners take turns in every round."""
    runners: dict[str, Callable[[Size], list[float]]] = {"loop": lambda size: run_loop(bench, size)}
    for name in natives:
        runners[name] = lambda size, name=name: run_native(bench, size, name)  # type: ignore[misc]
    times: dict[str, dict[int, list[float]]] = {name: {size.rows: [] for size in sizes} for name in runners}
    for run in runners.values():
        run(WARM)
    for turn in range(max(size.rounds for size in sizes)):
        for size in [each for each in sizes if turn < each.rounds]:
            order = list(runners) if turn % 2 == 0 else list(reversed(runners))
            for name in order:
                found = runners[name](size)
                times[name][size.rows] += found
                median = statistics.median(found)
                rate = f"{size.rows / median:,.0f} thousand rows/s"
                print(f"round {turn} {size.rows:>9,} rows {name:<14} {median:8.1f} ms {rate}", file=sys.stderr)
    return times


def verdict(times: Mapping[str, Mapping[int, list[float]]]) -> list[tuple[str, float, float, bool]]:
    """(measure, value, goal, whether it holds)."""
    medians = {name: {rows: statistics.median(found) for rows, found in by.items()} for name, by in times.items()}
    native = {rows: min(by[rows] for name, by in medians.items() if name != "loop") for rows in medians["loop"]}
    found = []
    for rows, goal in GOALS.items():
        ratio = native[rows] / medians["loop"][rows]
        found.append((f"rows_{rows}", ratio, goal, ratio >= goal))
    fixed = medians["loop"][TINY] / native[TINY]
    return [*found, ("fixed_cost", fixed, GOAL_FIXED, fixed <= GOAL_FIXED)]


def report(times: Mapping[str, Mapping[int, list[float]]], json_file: Path | None) -> int:
    """Print the figures and the measures; 0 when all goals are reached."""
    rows_of = list(times["loop"])
    print("median ms a batch (thousand rows/s)".ljust(36) + "".join(f"{rows:>20,}" for rows in rows_of))
    for name, by in times.items():
        cells = [(statistics.median(by[rows]), rows) for rows in rows_of]
        print(name.ljust(36) + "".join(f"{f'{ms:.0f} ({rows / ms:,.0f})':>20}" for ms, rows in cells))
    measures = verdict(times)
    OUT.mkdir(exist_ok=True)
    (OUT / "spark_loop.json").write_text(json.dumps({"ms": times}, indent=1), encoding="utf-8")
    if json_file is not None:
        figures = [dict(zip(("measure", "value", "goal", "ok"), each, strict=True)) for each in measures]
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    for name, value, goal, holds in measures:
        print(f"{name} {value:.2f} {goal:g} {'ok' if holds else 'short'}")
    return 0 if all(holds for *_, holds in measures) else 1


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


def start(stack: ExitStack, sizes: tuple[Size, ...]) -> Bench:
    """Servers, topic, coordinator, Spark."""
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkcoord-bench-")))
    zookeeper = stack.enter_context(EmbeddedZooKeeper(fsync=False))
    kafka = stack.enter_context(EmbeddedKafka(zookeeper.hosts, heap="1g"))
    fill(kafka.bootstrap_servers, PARTITIONS, MARGIN + max(size.rows * (size.batches + 3) for size in sizes))
    serving = threading.Event()
    coordinator = Coordinator(zookeeper.hosts, on_serving=lambda number, epoch: serving.set())
    coordinator.start()
    stack.callback(coordinator.stop)
    assert serving.wait(60), coordinator.error
    with stderr_to(OUT / "spark_loop.log"):  # a query that is stopped prints thousands of lines
        spark = spark_session(
            "zkcoord benchmark",
            jars=connector_jars(),
            environment=spark_environment(),
            log_level="OFF",
            config={"spark.driver.memory": "2g", "spark.local.dir": str(scratch)},
        )
    stack.callback(spark.stop)
    return Bench(spark, zookeeper.hosts, kafka.bootstrap_servers, scratch)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute; completes, but proves nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measures there too")
    chosen = parser.parse_args()
    sizes = QUICK if chosen.quick else FULL
    with ExitStack() as stack:
        bench = start(stack, sizes)
        times = measure(bench, sizes, QUICK_NATIVE if chosen.quick else FULL_NATIVE)
    return report(times, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
