"""Counts what a batch's jobs have read: rows by Spark's own counters, bytes by an observation in Spark."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zkcoord.spark.jobs import is_connect
from zkcoord.spark.ports import Meter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

SIZE = "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)"
UNTOLD_TRIES, UNTOLD_WAIT_S = 5, 0.002  # Spark's listeners hear of a job's end a little after the action has returned
OBSERVED_TRIES = 50  # ... and an observation of its figures: 100 ms, where `get` would wait for ever
NOTHING_SEEN_MAX = 3  # asking for what no action counts takes those 100 ms: not for ever


def meter_of(spark: SparkSession, *, measure_bytes: bool) -> Meter:
    """Return what counts reads in this session."""
    meter = ConnectMeter(spark) if is_connect(spark) else StageMeter(spark)
    return ObservedMeter(meter) if measure_bytes else meter


class Steps:
    """Keeps, for each thread, the latest news of a remote session's operations. One for each session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[int, tuple[object, ...]] = {}

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Note news, as Spark calls it on the thread that waits for the operation."""
        seen = tuple((each.stage_id, each.num_completed_tasks, each.num_bytes_read) for each in stages or ())
        with self._lock:
            self._latest[threading.get_ident()] = (operation_id, done, *seen)

    def of(self, thread: int) -> object:
        """Return the latest news of this thread."""
        with self._lock:
            return self._latest.get(thread)


_steps: weakref.WeakKeyDictionary[Any, Steps] = weakref.WeakKeyDictionary()


class ConnectMeter(Meter):
    """A remote session tells no counts of rows, only that its operations get on: every 2 s, unless its server's
    `spark.connect.progress.reportInterval` says otherwise."""

    def __init__(self, spark: SparkSession) -> None:
        if spark not in _steps:
            _steps[spark] = Steps()
            spark.registerProgressHandler(_steps[spark])
        self._steps = _steps[spark]
        self._thread = 0

    def watch(self, df: DataFrame) -> DataFrame:
        self._thread = threading.get_ident()
        return df

    def activity(self, tag: str) -> object:
        """Of what the batch's own thread waits for."""
        return self._steps.of(self._thread) or ()


class StageMeter(Meter):
    """Counts rows by the stages of the tagged jobs (2 to 3 ms a batch). The plan stays as it is."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()  # type: ignore[union-attr,unused-ignore]

    @cached_property
    def _store(self) -> Any:
        return self._context.statusStore()

    @cached_property
    def _tracker(self) -> Any:
        return self._context.statusTracker()

    def read(self, tag: str) -> tuple[int | None, int | None]:
        try:
            return self._rows(tag), None
        except Exception:  # counters are not worth a batch: another Spark may have other insides
            return None, None

    def activity(self, tag: str) -> object:
        """Jobs begun, and what the active ones have done. Rows come with the executors' heartbeats,
        every 10 s (`spark.executor.heartbeatInterval`), finished tasks at once."""
        try:
            return self._done(tag)
        except Exception:
            return None

    def _done(self, tag: str) -> tuple[object, ...]:
        jobs = list(self._tracker.getJobIdsForTag(tag))
        done: list[object] = [len(jobs)]
        for each in sorted(set(jobs).intersection(self._tracker.getActiveJobIds())):
            for stage in _stages(self._store.job(each)):
                now = self._store.lastStageAttempt(stage)
                rows = now.inputRecords(), now.outputRecords(), now.shuffleReadRecords(), now.shuffleWriteRecords()
                done.append((stage, now.attemptId(), now.numCompleteTasks(), *rows))
        return tuple(done)

    def _rows(self, tag: str) -> int | None:
        stages: set[int] = set()
        left = UNTOLD_TRIES
        for each in list(self._tracker.getJobIdsForTag(tag)):
            job = self._store.job(each)
            while left and job.status().toString() == "RUNNING":
                threading.Event().wait(UNTOLD_WAIT_S)
                job, left = self._store.job(each), left - 1
            stages.update(_stages(job))
        return (
            sum(int(self._store.lastStageAttempt(each).inputRecords()) for each in sorted(stages)) if stages else None
        )


class ObservedMeter(Meter):
    """Counts rows and bytes exactly, in the first action that reads the DataFrame. Costs about 20 ms a batch, and up to
    a third of the throughput of a job that does nothing else. Works in remote sessions too."""

    def __init__(self, meter: Meter) -> None:
        """`meter` tells the activity."""
        self._meter = meter
        self._seen: Observation | None = None
        self._missed = 0

    def watch(self, df: DataFrame) -> DataFrame:
        df = self._meter.watch(df)
        self._seen = None
        if self._missed >= NOTHING_SEEN_MAX:
            return df
        from pyspark.sql import Observation, functions

        self._seen = Observation("zkcoord")
        rows = functions.count(functions.lit(1)).alias("rows")
        return df.observe(self._seen, rows, functions.sum(functions.expr(SIZE)).alias("bytes"))

    def read(self, tag: str) -> tuple[int | None, int | None]:
        try:
            found = figures(self._seen, ("rows", "bytes")) if self._seen is not None else {}
        except Exception:  # of the action that failed, though `process` went on (Spark 4.2)
            found = {}
        self._missed += found is None
        return (found["rows"], found.get("bytes", 0)) if found else (None, None)

    def activity(self, tag: str) -> object:
        return self._meter.activity(tag)


def figures(seen: Observation, names: Iterable[str], tries: int = OBSERVED_TRIES) -> dict[str, Any] | None:
    """Return what was observed under these names, without nulls; None when no action has read the DataFrame, and in a
    remote session nothing.

    In a classic session the figures are asked for by name: to walk through Java's map ends with an exception of Java,
    which costs Spark's Python side 70 further calls.
    """
    java: Any = getattr(seen, "_jo", None)  # none in a remote session, which hears with the action's result
    for _ in range(tries if java is not None else 0):
        if java.future().isCompleted():
            break
        threading.Event().wait(UNTOLD_WAIT_S)
    else:
        if java is not None:
            return None
    told = seen.get if java is None else java.getAsJava()
    found = {name: told.get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _stages(job: Any) -> list[int]:
    """Return the numbers of a job's stages, in one call of Java's for all."""
    return [int(each) for each in job.stageIds().mkString(",").split(",") if each]
