"""Milliseconds from produce to processed at 1,000 records a second: ours against Spark's structured streaming.

    python benchmarks/spark_latency.py [--quick] [--json FILE]

Embedded ZooKeeper and Kafka, a real coordinator, one Spark (`local[2]`), 8 partitions. A process of its own produces
10 records each 10 ms without a pause. The runners take turns, each from the log's end on and as fast as it can (no
minimum batch time, the default trigger), after a turn that does not count: `loop` and `loop_python`, a SparkConsumer
with either reader; `source`, a query over `format("zkcoord")` (both let ranges below 5,000 offsets share tasks);
`foreach` and `foreach_tuned`, queries over `format("kafka")`. The work of all is to collect the records' times. A
record's clock starts at its time stamp (the call of `produce`) and stops when the batch that has it is collected;
what a runner collects in its first seconds does not count. Latencies: benchmarks/out/spark_latency_raw.json.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `latency_p50` and `latency_p99`
are the loop's over the better native one's; the same for the others, after their names, without a goal.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from kafka_log import TOPIC, create_topic
from spark_bench import (
    SHARED,
    Bench,
    await_query,
    conclude,
    make_consumer,
    start,
    start_native,
    start_source,
    told,
)
from verdict import Measure, arguments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 8
EACH_MS, AT_ONCE = 10, 10  # 1,000 records a second
ROWS_MAX = 100_000  # of a batch: more records than ever wait
OURS, NATIVE = ("loop", "loop_python", "source"), ("foreach", "foreach_tuned")
FULL = (3, 20, 3)  # seconds that do not count, seconds that count, rounds
QUICK = (1, 4, 1)
WARM_S = {True: 5, False: 15}  # quick or not: each runner's warm-up, in which the JVM compiles its code
GOAL = 1.0  # zkcoord's latency over the native one, at most


def produce(bootstrap_servers: str) -> None:
    """Produce until the process is ended."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 1, "log_level": 0})
    pause, due, number = threading.Event(), time.monotonic(), 0
    while True:
        for _ in range(AT_ONCE):
            producer.produce(TOPIC, b"x" * 100, partition=number % PARTITIONS)
            number += 1
        producer.poll(0)
        due += EACH_MS / 1000
        pause.wait(max(0.0, due - time.monotonic()))


class Watch:
    """The work of each runner: it notes how old each record is when its batch is done."""

    def __init__(self, skip_s: float, count_s: float) -> None:
        self._skip_s = skip_s
        self._count_s = count_s
        self._began_s: float | None = None  # the first batch with records
        self.latencies: list[float] = []
        self.batches = 0

    def __call__(self, df: DataFrame, batch: object) -> None:
        stamps = [row[0] for row in df.selectExpr("unix_millis(timestamp)").collect()]
        now_ms = time.time() * 1000
        if self._began_s is None and stamps:
            self._began_s = time.monotonic()
        if self._age_s() > self._skip_s and not self.over:
            self.latencies += [now_ms - each for each in stamps]
            self.batches += 1

    @property
    def over(self) -> bool:
        """True once the time is over."""
        return self._age_s() > self._skip_s + self._count_s

    def _age_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s


def run(bench: Bench, name: str, skip_s: float, count_s: float) -> Watch:
    """Let one runner read for its time."""
    watch = Watch(skip_s, count_s)
    if name.startswith("loop"):
        python = name == "loop_python"
        consumer = make_consumer(
            bench,
            ROWS_MAX,
            reader="python" if python else "kafka",
            starting="latest",
            shared=SHARED if python else 0,
        )

        def process(df: DataFrame, batch: object) -> None:
            watch(df, batch)
            if watch.over:
                consumer.stop()

        consumer.run(process)
        return watch
    if name == "source":
        query = start_source(bench, ROWS_MAX, watch, starting="latest", shared=SHARED)
    else:
        latest = {"subscribe": TOPIC, "startingOffsets": "latest"}
        query = start_native(bench, ROWS_MAX, watch, tuned=name.endswith("_tuned"), offsets=latest)
    try:
        await_query(query, lambda: watch.over, skip_s + count_s + 60)
    finally:
        query.stop()
    return watch


def centiles(latencies: list[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    cuts = statistics.quantiles(latencies, n=100)
    return cuts[49], cuts[98]


def measure(bench: Bench, names: tuple[str, ...], quick: bool) -> dict[str, list[float]]:
    """Return runner -> the latency of each record, in ms. In every round the runners take turns."""
    skip_s, count_s, rounds = QUICK if quick else FULL
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        run(bench, name, 0, WARM_S[quick])
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            watch = run(bench, name, skip_s, count_s)
            found[name] += watch.latencies
            p50, p99 = centiles(watch.latencies)
            told(f"round {turn} {name:<14} p50 {p50:6.0f} ms p99 {p99:6.0f} ms, {watch.batches} batches")
    return found


def verdict(cuts: Mapping[str, tuple[float, float]]) -> list[Measure]:
    """The ratios, the loop's first."""
    measures = []
    for name in [each for each in OURS if each in cuts]:
        for index, centile in enumerate(("p50", "p99")):
            best = min(cuts[each][index] for each in NATIVE if each in cuts)
            prefix, goal = ("", GOAL) if name == "loop" else (f"{name}_", None)
            measures.append(Measure(f"{prefix}latency_{centile}", cuts[name][index] / best, goal, at_most=True))
    return measures


def main() -> int:
    """The program."""
    parser = arguments(__doc__)
    parser.add_argument("--produce", metavar="SERVERS", help="what the program starts beside itself")
    chosen = parser.parse_args()
    if chosen.produce is not None:
        produce(chosen.produce)
    names = ("loop", "loop_python", "source", "foreach") if chosen.quick else (*OURS, *NATIVE)
    with ExitStack() as stack:
        bench = start(stack, "spark_latency", lambda servers: create_topic(servers, PARTITIONS))
        producing = subprocess.Popen([sys.executable, __file__, "--produce", bench.bootstrap_servers])
        stack.callback(producing.wait)
        stack.callback(producing.terminate)
        found = measure(bench, names, chosen.quick)
    cuts = {name: centiles(latencies) for name, latencies in found.items()}
    for name, (p50, p99) in cuts.items():
        print(f"{name:<14} p50 {p50:6.0f} ms  p99 {p99:6.0f} ms  {len(found[name]):,} records")
    return conclude("spark_latency", {"ms": found}, verdict(cuts), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
