"""What a rebalance costs in throughput: a consumer that joins and leaves, against native queries that are restarted.

    python benchmarks/spark_rebalance.py [--quick] [--json FILE]

Embedded ZooKeeper and Kafka, a real coordinator, one Spark (`local[2]`), 8 partitions of 100-byte records, batches of
10,000, a write to nowhere. After a turn that does not count, each runner reads from the beginning, first *steady*,
alone with all partitions, then *churned*: every 10 s half of the partitions go to somebody else, or come back. For
`loop`, a SparkConsumer, and `source`, a query over `format("zkcoord")`, that is another consumer of the group, which
joins and leaves (it reads nothing, and takes no time of this machine). Spark's own source cannot be told: `noop` and
`noop_tuned` are stopped and started again with another `assign`, from the end of their last whole batch, in the same
session (a deployment would start another program). Rows count when their batch is done. Rates:
benchmarks/out/spark_rebalance_raw.json.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `rebalance_kept` is what of its
steady rows per second the loop keeps while churned, over the same of the better native one (at least); `loop_kept` and
`native_kept` are these by themselves.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kafka_log import TOPIC, fill
from spark_bench import (
    SHARED,
    Bench,
    conclude,
    group_name,
    make_consumer,
    start,
    start_native,
    start_source,
    to_nowhere,
    told,
)
from verdict import Measure, arguments

from zkcoord.consumer import Consumer
from zkcoord.core.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from zkcoord.spark import Batch

PARTITIONS = 8
ROWS = 10_000
NATIVE = ("noop", "noop_tuned")
GOAL = 1.0
Done = list[tuple[float, int]]  # when a batch was done (seconds of the wall clock), and its rows


@dataclass(frozen=True)
class Plan:
    """The times of changes, in seconds after a runner's first batch, and how many records the log needs."""

    skip_s: float
    steady_s: float
    period_s: float
    changes: int
    rounds: int
    rows: int

    @property
    def churn_at_s(self) -> float:
        return self.skip_s + self.steady_s

    @property
    def end_s(self) -> float:
        return self.churn_at_s + self.changes * self.period_s


FULL = Plan(skip_s=5, steady_s=20, period_s=10, changes=4, rounds=2, rows=24_000_000)
WARM = Plan(skip_s=0, steady_s=4, period_s=2, changes=2, rounds=1, rows=0)
QUICK = Plan(skip_s=2, steady_s=4, period_s=3, changes=2, rounds=1, rows=3_000_000)


def other_consumer(bench: Bench, group: str) -> Consumer:
    """A member that takes its share of the partitions, and later gives it back with unchanged offsets."""
    held: dict[TopicPartition, int] = {}

    def take(positions: Mapping[TopicPartition, int]) -> None:
        held.update(positions)

    def give(partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        return {each: held.pop(each) for each in partitions}

    def lose(partitions: tuple[TopicPartition, ...]) -> None:
        for each in partitions:
            held.pop(each, None)

    return Consumer(
        bench.zookeeper,
        group,
        [TOPIC],
        on_start=take,
        on_stop=give,
        on_lost=lose,
        reset=lambda partitions: dict.fromkeys(partitions, 0),
    )


def churn(bench: Bench, group: str, plan: Plan, first: threading.Event, over: Callable[[], None]) -> None:
    """From the first batch on: have the other consumer join and leave as planned, then call `over`."""
    pause = threading.Event()
    assert first.wait(120), "no batch"
    began = time.monotonic()
    other: Consumer | None = None
    for change in range(plan.changes + 1):
        pause.wait(max(0.0, began + plan.churn_at_s + change * plan.period_s - time.monotonic()))
        if other is not None:
            other.stop()
            other = None
        elif change < plan.changes:
            other = other_consumer(bench, group)
            other.start()
    over()


def run_loop(bench: Bench, plan: Plan) -> Done:
    """Run the driver loop. A batch counts as done when the next one begins, since it is committed then."""
    group, first, begun = group_name("loop"), threading.Event(), list[tuple[float, int]]()
    consumer = make_consumer(bench, ROWS, group=group)

    def process(df: DataFrame, batch: Batch) -> None:
        begun.append((time.time(), sum(each.end - each.start for each in batch.ranges)))
        first.set()
        to_nowhere(df)

    churning = threading.Thread(target=churn, args=(bench, group, plan, first, consumer.stop))
    churning.start()
    consumer.run(process)
    churning.join()
    return [(at, rows) for (_, rows), (at, _) in pairwise(begun)]


def done_of(query: Any) -> Done:
    """Return the batches that a query has finished."""
    return [
        (datetime.fromisoformat(each.timestamp).timestamp() + each.durationMs["triggerExecution"] / 1000, rows)
        for each in query.recentProgress
        if (rows := each.numInputRows) > 0
    ]


def run_source(bench: Bench, plan: Plan) -> Done:
    """The streaming source."""
    group, first = group_name("source"), threading.Event()
    query = start_source(bench, ROWS, None, group=group, shared=SHARED)
    churning = threading.Thread(target=churn, args=(bench, group, plan, first, lambda: None))
    churning.start()
    try:
        await_first(query)
        first.set()
        churning.join()
    finally:
        first.set()
        query.stop()
    return done_of(query)


def await_first(query: Any) -> None:
    """Wait for the first batch."""
    pause, end = threading.Event(), time.monotonic() + 120
    while not query.recentProgress:
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < end, "no batch"
        pause.wait(0.02)


def run_native(bench: Bench, plan: Plan, tuned: bool) -> Done:
    """Run Spark's own source. At each change the query is stopped, and started again with another assignment."""
    positions = dict.fromkeys(range(PARTITIONS), 0)
    done: Done = []
    pause, began = threading.Event(), 0.0
    for change in range(plan.changes + 1):
        mine = range(PARTITIONS if change % 2 == 0 else PARTITIONS // 2)
        offsets = {
            "assign": json.dumps({TOPIC: list(mine)}),
            "startingOffsets": json.dumps({TOPIC: {str(each): positions[each] for each in mine}}),
        }
        query = start_native(bench, ROWS, None, tuned=tuned, offsets=offsets)
        try:
            if change == 0:
                await_first(query)
                began = time.monotonic()
            pause.wait(max(0.0, began + plan.churn_at_s + change * plan.period_s - time.monotonic()))
        finally:
            query.stop()
        done += done_of(query)
        if query.lastProgress is not None:
            ends = json.loads(query.lastProgress.sources[0].endOffset)[TOPIC]
            positions.update({int(each): end for each, end in ends.items()})
    return done


def rates(done: Done, plan: Plan) -> tuple[float, float]:
    """Rows per second, steady and churned."""
    first = done[0][0]

    def rate(since_s: float, until_s: float) -> float:
        return sum(rows for at, rows in done if since_s <= at - first < until_s) / (until_s - since_s)

    assert all(rows > 0.9 * ROWS for _, rows in done), "the log is too short"  # Spark's source rounds shares
    return rate(plan.skip_s, plan.churn_at_s), rate(plan.churn_at_s, plan.end_s)


def measure(bench: Bench, names: tuple[str, ...], plan: Plan) -> dict[str, list[tuple[float, float]]]:
    """Return runner -> (steady, churned) rows per second of each round. The runners take turns."""
    runners: dict[str, Callable[[Plan], Done]] = {
        "loop": lambda which: run_loop(bench, which),
        "source": lambda which: run_source(bench, which),
        "noop": lambda which: run_native(bench, which, tuned=False),
        "noop_tuned": lambda which: run_native(bench, which, tuned=True),
    }
    bench.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for name in names:
        runners[name](WARM)
    for turn in range(plan.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            steady, churned = rates(runners[name](plan), plan)
            found[name].append((steady, churned))
            told(f"round {turn} {name:<12} {steady:9,.0f} rows/s, churned {churned:9,.0f}: {churned / steady:.2f}")
    return found


def main() -> int:
    """The program."""
    chosen = arguments(__doc__).parse_args()
    plan = QUICK if chosen.quick else FULL
    names = ("loop", "noop") if chosen.quick else ("loop", "source", *NATIVE)
    with ExitStack() as stack:
        bench = start(stack, "spark_rebalance", lambda servers: fill(servers, PARTITIONS, plan.rows))
        found = measure(bench, names, plan)
    kept = {}
    for name, each in found.items():
        steady, churned = (sum(column) / len(each) for column in zip(*each, strict=True))
        kept[name] = churned / steady
        print(f"{name:<12} {steady:9,.0f} rows/s steady, {churned:9,.0f} churned: {kept[name]:.2f} kept")
    native = max(kept[name] for name in NATIVE if name in kept)
    measures = [Measure("rebalance_kept", kept["loop"] / native, GOAL), Measure("loop_kept", kept["loop"])]
    measures += [Measure("source_kept", kept["source"])] if "source" in kept else []
    return conclude("spark_rebalance", {"rates": found}, [*measures, Measure("native_kept", native)], chosen.json)


if __name__ == "__main__":
    sys.exit(main())
