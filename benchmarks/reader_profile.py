"""Measures where the reader without a jar spends its time: in the steps of its tasks, and in Spark before and around
them.

The reader is the product's own, unchanged. In the workers its Kafka client is a subclass that times its calls, and the
generator of its Arrow batches is timed from outside. Each task writes what it found into a file. Jobs whose workers
keep their clients from one task to the next take turns with jobs whose tasks have a client of their own each (`own`).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
from kafka_log import TOPIC
from verdict import Measure

from zkcoord.spark import OffsetRange
from zkcoord.spark.readers import kept_clients
from zkcoord.spark.readers.python import RangesReader, RangesSource, Slices, read_in_worker
from zkcoord.spark.readers.ranges import read_plan, register, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "zkcoord-ranges-profiled"
ROWS = 100_000
TASKS = (8, 1)  # the default has a task for each range; ranges that share tasks come to few
REUSED = "SPARK_REUSE_WORKER"  # set in a worker that gets further tasks from Spark, and so keeps its clients
ROUNDS_WARM = 2  # they do not count: Spark's code is compiled, and workers are started
STEPS = {  # in the order in which a job has them
    "start": "Spark plans, and starts the first task",
    "client": "a Kafka client is made, if none was kept",
    "assign": "it is assigned the range",
    "first": "consume, until the first records are there",
    "consume": "consume, all further calls",
    "columns": "records become Arrow columns",
    "handover": "Arrow batches are handed over to Spark",
    "close": "the range is taken from it, or it is closed",
    "between": "Spark, between two tasks",
    "end": "Spark, behind the last task",
}


class Spent:
    """Seconds of each step of one task."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.records = 0

    @contextmanager
    def on(self, step: str) -> Iterator[None]:
        """Add the time of the block to a step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] += time.perf_counter() - began


def timed_client() -> type:
    """Make the class of timed clients in the worker, since the class cannot be sent there."""

    class Timed(confluent_kafka.Consumer):  # type: ignore[misc]
        """confluent-kafka's consumer that times its calls for the task that runs. A kept consumer serves several
        tasks."""

        def __init__(self, *settings: Any) -> None:
            with running().on("client"):
                super().__init__(*settings)

        def assign(self, *partitions: Any) -> None:
            with running().on("assign"):
                super().assign(*partitions)

        def consume(self, *limits: Any) -> Any:
            spent = running()
            with spent.on("consume" if spent.records else "first"):
                found = super().consume(*limits)
            spent.records += len(found)
            return found

        def unassign(self) -> None:
            with running().on("close"):
                super().unassign()

        def close(self) -> None:
            with running().on("close"):
                super().close()

    return Timed


def running() -> Spent:
    """Return the time spent by the task that runs, or ran last."""
    found: Spent = confluent_kafka.zkcoord_spent
    return found


def profiled(plan: Mapping[str, Any], task: Slices) -> Iterator[pa.RecordBatch]:
    """Return the records of a task. Afterwards a file in the folder `plan["told"]` has the times of its steps."""
    plain, reused = confluent_kafka.Consumer, os.environ.pop(REUSED)
    spent = confluent_kafka.zkcoord_spent = Spent()
    confluent_kafka.Consumer = timed_client()  # the reader takes it from there
    if not plan["own"]:
        os.environ[REUSED] = reused
    began_s, began = time.time(), time.perf_counter()
    try:
        for batch in read_in_worker(plan, task):
            with spent.on("handover"):
                yield batch
    finally:
        confluent_kafka.Consumer = plain
        os.environ[REUSED] = reused
    took = time.perf_counter() - began
    told = {"began_s": began_s, "took_s": took, "records": spent.records, "steps_s": spent.seconds}
    (Path(plan["told"]) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(told), encoding="utf-8")


class ProfiledReader(RangesReader):
    """The product's reader, with its tasks timed."""

    def read(self, partition: Slices | None) -> Iterator[pa.RecordBatch]:
        """As Spark asks for it."""
        return iter(()) if partition is None else profiled(self._plan, partition)


class ProfiledSource(RangesSource):
    """The product's source, with that reader."""

    @classmethod
    def name(cls) -> str:
        """As Spark asks for it."""
        return FORMAT

    def reader(self, schema: object) -> ProfiledReader:
        """As Spark asks for it."""
        return ProfiledReader(json.loads(self.options["plan"]))


def named(tasks: int, own: bool) -> str:
    """Return the name of a shape in the measures."""
    return f"{tasks}_task{'s' if tasks > 1 else ''}{'_own' if own else ''}"


def one_job(spark: SparkSession, plan: Mapping[str, Any], tasks: int, scratch: Path) -> dict[str, float]:
    """Run a job that reads ROWS offsets and writes them to nowhere; return the milliseconds of each of STEPS."""
    told = scratch / uuid.uuid4().hex
    told.mkdir()
    asked = json.dumps({**plan, "told": str(told), "tasks": tasks_of([OffsetRange(TOPIC, 0, 0, ROWS)], ROWS // tasks)})
    began_s = time.time()
    spark.read.format(FORMAT).option("plan", asked).load().write.format("noop").mode("append").save()
    ended_s = time.time()
    found = [json.loads(file.read_text(encoding="utf-8")) for file in told.iterdir()]
    assert (len(found), sum(each["records"] for each in found) >= ROWS) == (tasks, True), found
    return {step: 1000 * seconds for step, seconds in steps_of(found, began_s, ended_s).items()}


def steps_of(found: Sequence[Mapping[str, Any]], began_s: float, ended_s: float) -> dict[str, float]:
    """Return the seconds of each of STEPS. Their sum is the job's time, since its tasks run one after the other."""
    first = min(each["began_s"] for each in found)
    last = max(each["began_s"] + each["took_s"] for each in found)
    inside = sum(each["took_s"] for each in found)
    told = {step: sum(each["steps_s"].get(step, 0.0) for each in found) for step in STEPS}
    between = max(0.0, last - first - inside)  # two clocks
    around = {"start": first - began_s, "between": between, "end": ended_s - last}
    return {**told, "columns": inside - sum(told.values()), **around}


def profile(
    spark: SparkSession, bootstrap_servers: str, rounds: int, scratch: Path
) -> dict[str, list[dict[str, float]]]:
    """Run jobs with different numbers of tasks in turns; return the steps of each job by its shape (`named`)."""
    register(spark, ProfiledSource, sys.modules[RangesSource.__module__], kept_clients, sys.modules[__name__])
    plan = read_plan(bootstrap_servers, "profile", {}, headers=False, timeout_ms=20_000)
    shapes = [(tasks, own) for tasks in TASKS for own in (False, True)]
    found: dict[str, list[dict[str, float]]] = {named(*shape): [] for shape in shapes}
    for turn in range(rounds + ROUNDS_WARM):
        for tasks, own in shapes if turn % 2 else reversed(shapes):
            steps = one_job(spark, {**plan, "own": own}, tasks, scratch)
            if turn >= ROUNDS_WARM:
                found[named(tasks, own)].append(steps)
    return found


def medians(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Milliseconds of each step: the median of its rounds."""
    return {
        shape: {step: statistics.median(each[step] for each in rounds) for step in STEPS}
        for shape, rounds in found.items()
    }


def table(typical: Mapping[str, Mapping[str, float]]) -> str:
    """The steps as lines, the shapes as columns: milliseconds, and the part of the whole."""
    totals = {shape: sum(steps.values()) for shape, steps in typical.items()}
    head = "".join(f"{'in ' + shape.replace('_', ' '):>18}" for shape in typical)
    lines = [f"{f'{ROWS:,} rows, one task at a time':<46}{head}"]
    for step, words in STEPS.items():
        cells = "".join(f"{typical[at][step]:>9.1f} ms {typical[at][step] / totals[at]:>5.0%}" for at in typical)
        lines.append(f"{words:<46}{cells}")
    lines.append(f"{'all':<46}" + "".join(f"{totals[at]:>9.1f} ms {1:>5.0%}" for at in typical))
    return "\n".join(lines)


def measures(typical: Mapping[str, Mapping[str, float]]) -> list[Measure]:
    """Return the medians as measures without goals, then the part of a job's time that kept clients save. They show
    where the time goes, not whether it is good."""
    totals = {shape: sum(steps.values()) for shape, steps in typical.items()}
    kept = [(tasks, totals[named(tasks, False)] / totals[named(tasks, True)]) for tasks in TASKS]
    return [
        *(
            Measure(f"profile_{shape}_{step}_ms", took)
            for shape, steps in typical.items()
            for step, took in steps.items()
        ),
        *(Measure(f"kept_over_own_{named(tasks, False)}", ratio) for tasks, ratio in kept),
    ]
