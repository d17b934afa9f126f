"""Rows per second and fixed cost: the driver loop and the streaming source against Spark's structured streaming.

    python benchmarks/spark_loop.py [--shape BYTESxPARTITIONS] [--quick] [--json FILE]

Embedded ZooKeeper and Kafka, a real coordinator, one Spark (`local[2]`, one JVM, the same settings for all), a topic
of one shape (100-byte records in 8 partitions; `--shape` for 1000x8, 100x64, 1000x64), a write to nowhere. In each
round and for each batch size every runner reads the topic from its beginning, one after the other: `loop` and
`loop_python` are a whole SparkConsumer, alone in a group, with its membership, announcements and commits, over
Spark's connector and over the reader without a jar (ranges below 5,000 offsets share tasks); `loop_unannounced` does
not announce its batches; `source` and `source_noop` are queries over `format("zkcoord")` (ranges share tasks
likewise), `ranges` is one with the option `rows=ranges` and `batches`, so that Spark's connector reads; `X_shared` is X
whose ranges share tasks below 50,000 offsets; the native ones are queries over `format("kafka")` with a fresh
checkpoint, {foreachBatch, noop} x {plain, tuned consumer}; with 8 partitions `X_files`, too, is X whose checkpoint's
files `FileSystemBasedCheckpointFileManager` writes. A batch's time is what passes from one batch's
beginning to the next one's; the first batch of each run does not count. Compared are medians over all rounds, with the
best native one of those without `_files`. Raw times: benchmarks/out/spark_loop_raw.json.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `rows_N` is native's batch time
over the loop's at N rows a batch (at least the goal), `fixed_cost` the loop's over native's for 10 rows a partition (at
most); the same for the others, after their names: `ranges` has goals, and so have both as `_shared`, the rest none
(`-`). Goals are for the first shape, and those of the loop's rows for 64 partitions. There as many rounds are made, at
least one, as fit into ten minutes with everything else, without two of the runners, and with two batches a round of
those that read by Python; `minutes` is what the run took. `empty_fixed_cost` is that of a query over one row that does
nothing: no stream's can be less. Sizes are rounded up to as many rows of each partition. `--quick` has two sizes and
fewer batches of each, after a warm-up.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kafka_log import fill
from spark_bench import (
    NATIVE,
    SHARED,
    SHARED_LARGE,
    Bench,
    await_batches,
    checkpoint_files,
    conclude,
    make_consumer,
    start,
    start_native,
    start_query,
    start_source,
    to_nowhere,
    told,
)
from verdict import Measure, arguments

from zkcoord.spark import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHAPES = ("100x8", "1000x8", "100x64", "1000x64")
MARGIN = 1.6  # further batches that are not read: near the log's end a native query waits up to 500 ms for records
TINY = 80  # with 8 partitions: 10 in each
Goals = Mapping[str, tuple[Mapping[int, float], float | None]]
ASKED: Goals = {  # at least native's time over the runner's; for a tiny batch at most the runner's over native's
    "loop": ({10_000: 3.1, 100_000: 2.3, 1_000_000: 1.7}, 0.28),
    "ranges": ({10_000: 1.5, 100_000: 1.5, 1_000_000: 1.2}, 0.6),
}
ASKED_64: Goals = {"loop": ({10_000: 1.8, 100_000: 1.5, 1_000_000: 1.2}, None)}  # with 64 partitions
MINUTES = 10  # a whole run with 64 partitions, at most
DEADLINE_S = 600
EMPTY = 40  # triggers
EMPTY_S = 20  # seconds for these triggers and for the end of all programs
READ_BY_PYTHON = ("loop_python", "loop_python_shared", "source", "source_noop")
BY_CONNECTOR = ("loop", "loop_shared", "loop_unannounced", "ranges", "ranges_shared", "ranges_shared_files")
OURS = (*BY_CONNECTOR, *READ_BY_PYTHON)
LEFT_OUT_64 = ("loop_unannounced", "source_noop")  # with 64 partitions, as are all of FILES
FILES = ("ranges_shared_files", "foreach_files", "noop_tuned_files")  # with another writer of the checkpoint's files
QUICK_NAMES = ("loop", "loop_shared", *READ_BY_PYTHON[:3], "ranges", "ranges_shared", "foreach", "noop_tuned")
Times = dict[str, dict[int, list[float]]]  # runner -> rows a batch -> milliseconds of each batch


@dataclass(frozen=True)
class Size:
    """Rows a batch; batches that count in a round; rounds; at most so many batches of a runner that reads by Python."""

    rows: int
    batches: int
    rounds: int
    by_python: int = sys.maxsize


FULL = (Size(10_000, 10, 2), Size(100_000, 10, 2), Size(1_000_000, 10, 2), Size(TINY, 10, 2))
FULL_LARGE = (*FULL[:2], Size(1_000_000, 2, 10), FULL[3])  # records of 1 KB: a log of 5 GB
FULL_64 = tuple(replace(size, batches=min(5, size.batches), rounds=5, by_python=2) for size in FULL)
FULL_LARGE_64 = (*FULL_64[:2], Size(1_000_000, 2, 5), FULL_64[3])
QUICK = (Size(10_000, 6, 1), Size(TINY, 6, 1))
WARM = (Size(TINY, 4, 1), Size(10_000, 8, 1))  # before anything counts: the JVM compiles what all runners use


def in_partitions(sizes: tuple[Size, ...], partitions: int) -> tuple[Size, ...]:
    """Return the size rounded up so that each partition has the same number of rows. Otherwise Spark's own source would
    take fewer rows than it was asked for."""
    least = TINY // 8 * partitions
    return tuple(replace(size, rows=max(least, evenly(size.rows, partitions))) for size in sizes)


def evenly(rows: int, partitions: int) -> int:
    """Return this number of rows, rounded up to the same number for each partition."""
    return -(-rows // partitions) * partitions


def run_loop(bench: Bench, size: Size, name: str) -> list[float]:
    """Return the milliseconds of each batch of a Spark consumer."""
    began: list[float] = []

    def process(df: DataFrame, batch: Batch) -> None:
        began.append(time.perf_counter())  # the batch before is committed, and this one is planned
        to_nowhere(df)

    consumer = make_consumer(
        bench,
        size.rows,
        reader="python" if name.startswith("loop_python") else "kafka",
        announce=name != "loop_unannounced",
        shared=shared(name),
    )
    consumer.run(process, max_batches=size.batches + 2)
    return between_ms(began)


def shared(name: str) -> int:
    """Return the number of offsets below which ranges share tasks with this runner."""
    if "_shared" in name:
        return SHARED_LARGE
    return SHARED if name in READ_BY_PYTHON else 0


def run_query(query: Any, size: Size) -> list[float]:
    """Return the milliseconds of each batch of a streaming query, from one trigger's start to the next trigger's
    start."""
    done = [each for each in await_batches(query, size.batches + 2, DEADLINE_S) if each.numInputRows > 0]
    counted = done[: size.batches + 2]
    assert len(counted) == size.batches + 2, [each.batchId for each in done]
    assert all(each.numInputRows == size.rows for each in counted), [each.numInputRows for each in counted]
    return between_ms([datetime.fromisoformat(each.timestamp).timestamp() for each in counted])


def run_empty(bench: Bench, *, quick_files: bool = False) -> dict[str, list[float]]:
    """Return the milliseconds of each trigger, and of its steps, of a query that does nothing with one row."""
    rows_in = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    with checkpoint_files(bench, quick=quick_files):
        query = start_query(bench, rows_in, lambda df, number: None)
    done = await_batches(query, EMPTY + 2, DEADLINE_S)[: EMPTY + 2]
    found = {"empty": between_ms([datetime.fromisoformat(each.timestamp).timestamp() for each in done])}
    for step in done[-1].durationMs:
        found[step] = [float(each.durationMs.get(step, 0)) for each in done[1:]]
    return found


def between_ms(began: list[float]) -> list[float]:
    """Return how long each batch took, without the last one and without the first, in which readers are made."""
    return [1000 * (later - earlier) for earlier, later in pairwise(began[1:])]


def run(bench: Bench, size: Size, name: str) -> list[float]:
    """Return the milliseconds of each batch of this runner."""
    if name in READ_BY_PYTHON:
        size = replace(size, batches=min(size.batches, size.by_python))
    if name.startswith("loop"):
        return run_loop(bench, size, name)
    work = None if "noop" in name else to_nowhere
    with checkpoint_files(bench, quick=name.endswith("_files")):
        if name in OURS:
            query = start_source(bench, size.rows, work, of_ranges=name.startswith("ranges"), shared=shared(name))
        else:
            query = start_native(bench, size.rows, work, tuned="_tuned" in name)
    return run_query(query, size)


def measure(
    bench: Bench, warm: tuple[Size, ...], sizes: tuple[Size, ...], names: tuple[str, ...], until: float
) -> Times:
    """Let the runners take turns in every round, after a warm-up. After the first round, make only rounds that end
    before
    `until`."""
    times: Times = {name: {size.rows: [] for size in sizes} for name in names}
    for size in warm:
        for name in names:
            run(bench, size, name)
    longest, began = 0.0, time.monotonic()
    for turn in range(max(size.rounds for size in sizes)):
        if turn:
            longest, began = max(longest, time.monotonic() - began), time.monotonic()
        if began + longest > until and turn:
            told(f"{turn} rounds fit into the time")
            break
        for size in [each for each in sizes if turn < each.rounds]:
            for name in names if turn % 2 == 0 else reversed(names):
                found = run(bench, size, name)
                times[name][size.rows] += found
                median = statistics.median(found)
                rate = f"{size.rows / median:,.0f} thousand rows/s"
                told(f"round {turn} {size.rows:>9,} rows {name:<14} {median:8.1f} ms {rate}")
    return times


def verdict(times: Mapping[str, Mapping[int, list[float]]], goals: Goals) -> list[Measure]:
    """The ratios, the loop's first."""
    medians = {name: {rows: statistics.median(found) for rows, found in by.items()} for name, by in times.items()}
    sizes = list(medians["loop"])
    native = {rows: min(medians[name][rows] for name in medians if name in NATIVE) for rows in sizes}
    found = []
    for name in (each for each in OURS if each in medians):
        prefix = "" if name == "loop" else f"{name}_"
        wanted, fixed = goals.get(name.removesuffix("_shared"), ({}, None))
        for rows in sizes:
            own, other = medians[name][rows], native[rows]
            if rows == min(sizes):
                found.append(Measure(f"{prefix}fixed_cost", own / other, fixed, at_most=True))
            else:
                found.append(Measure(f"{prefix}rows_{rows}", other / own, _goal(wanted, rows)))
    return found


def _goal(wanted: Mapping[int, float], rows: int) -> float | None:
    """Return the goal of the size that was rounded up to this number of rows."""
    return next((goal for size, goal in wanted.items() if size <= rows < 2 * size), None)


def show(times: Mapping[str, Mapping[int, list[float]]]) -> None:
    """Print the medians."""
    rows_of = list(times["loop"])
    print("median ms a batch (thousand rows/s)".ljust(36) + "".join(f"{rows:>20,}" for rows in rows_of))
    for name, by in times.items():
        cells = [(statistics.median(by[rows]), rows) for rows in rows_of]
        print(name.ljust(36) + "".join(f"{f'{ms:.0f} ({rows / ms:,.0f})':>20}" for ms, rows in cells))


def main() -> int:
    """The program."""
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="bytes of a record x partitions")
    chosen = parser.parse_args()
    began = time.monotonic()
    record_bytes, partitions = (int(part) for part in chosen.shape.split("x"))
    many = partitions > 8
    full = {(100, False): FULL, (1000, False): FULL_LARGE, (100, True): FULL_64, (1000, True): FULL_LARGE_64}[
        record_bytes, many
    ]
    sizes = in_partitions(QUICK if chosen.quick else full, partitions)
    warm = in_partitions(WARM, partitions)
    rows = max(evenly(int(size.rows * (size.batches + 3 + MARGIN)), partitions) for size in (*sizes, *warm))
    names: list[str] = [*OURS, *NATIVE, *(each for each in FILES if each not in OURS)]
    if many:
        names = [each for each in names if each not in (*FILES, *LEFT_OUT_64)]
    if chosen.quick:
        names = [*QUICK_NAMES]
    with ExitStack() as stack:
        heap = "2g" if partitions == 8 else "8g"  # each tuned native consumer may hold 4 MB of each partition, twice
        bench = start(stack, "spark_loop", lambda servers: fill(servers, partitions, rows, record_bytes), heap)
        until = began + 60 * MINUTES - EMPTY_S if many else float("inf")
        times = measure(bench, warm, sizes, tuple(names), until)
        empty, empty_files = run_empty(bench), run_empty(bench, quick_files=True)
    show(times)
    for kind, found in (("", empty), (" with other files", empty_files)):
        steps = ", ".join(f"{step} {statistics.median(ms):.0f}" for step, ms in found.items())
        print(f"an empty trigger{kind}, ms: {steps}")
    native = min(statistics.median(by[min(by)]) for name, by in times.items() if name in NATIVE)
    measures = verdict(times, ASKED if chosen.shape == SHAPES[0] else ASKED_64 if many else {})
    measures.append(Measure("empty_fixed_cost", statistics.median(empty["empty"]) / native))
    limit = MINUTES if many and not chosen.quick else None
    measures.append(Measure("minutes", (time.monotonic() - began) / 60, limit, at_most=True))
    return conclude(
        "spark_loop",
        {"shape": chosen.shape, "ms": times, "empty_ms": empty, "empty_files_ms": empty_files},
        measures,
        chosen.json,
    )


if __name__ == "__main__":
    sys.exit(main())
