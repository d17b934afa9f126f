"""Counts what a batch's jobs have read: rows by Spark's own counters, and bytes by an observation in Spark."""

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
# Spark's listeners are told of a job's end shortly after the action has returned
UNTOLD_TRIES, UNTOLD_WAIT_S = 5, 0.002
OBSERVED_TRIES = 50  # the same for an observation's figures: 100 ms, where `get` would wait for ever
NOTHING_SEEN_MAX = 3  # asking in vain takes those 100 ms, so it stops after this many times


def meter_of(spark: SparkSession, *, measure_bytes: bool) -> Meter:
    """Return the object that counts reads in this session."""
    meter = ConnectMeter(spark) if is_connect(spark) else StageMeter(spark)
    return ObservedMeter(meter) if measure_bytes else meter


class Steps:
    """Keeps, for each thread, the latest progress of a remote session's operations. There is one for each session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[int, tuple[object, ...]] = {}

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Note progress. Spark calls it on the thread that waits for the operation."""
        seen = tuple((each.stage_id, each.num_completed_tasks, each.num_bytes_read) for each in stages or ())
        with self._lock:
            self._latest[threading.get_ident()] = (operation_id, done, *seen)

    def of(self, thread: int) -> object:
        """Return the latest progress of this thread."""
        with self._lock:
            return self._latest.get(thread)


_steps: weakref.WeakKeyDictionary[Any, Steps] = weakref.WeakKeyDictionary()


class ConnectMeter(Meter):
    """A remote session tells no counts of rows, only that its operations make progress: every 2 s, unless its server's
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
        """The progress of the operation for which the batch's own thread waits."""
        return self._steps.of(self._thread) or ()


class StageMeter(Meter):
    """Counts rows by the stages of the tagged jobs, which takes 2 to 3 ms for a batch. The plan is unchanged."""

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
        except Exception:  # counters are not worth a failed batch: another Spark version may have other internals
            return None, None

    def activity(self, tag: str) -> object:
        """The number of jobs begun, and the work of the active ones. Rows come with the executors' heartbeats, every 10
        s (`spark.executor.heartbeatInterval`), and finished tasks at once."""
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
    """Counts rows and bytes exactly, in the first action that reads the DataFrame. It takes about 20 ms for a batch,
    and up to a third of the throughput of a job that does nothing else. It also works in remote sessions."""

    def __init__(self, meter: Meter) -> None:
        """`meter` is used for the activity."""
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
        except Exception:  # the action failed, though `process` went on (Spark 4.2)
            found = {}
        self._missed += found is None
        return (found["rows"], found.get("bytes", 0)) if found else (None, None)

    def activity(self, tag: str) -> object:
        return self._meter.activity(tag)


def figures(seen: Observation, names: Iterable[str], tries: int = OBSERVED_TRIES) -> dict[str, Any] | None:
    """Return the observed values with these names, without nulls. None: no action has read the DataFrame; in a remote
    session there is nothing.

    In a classic session each value is requested by name: iterating over Java's map ends with a Java exception, which
    costs Spark's Python side 70 further calls.
    """
    java: Any = getattr(seen, "_jo", None)  # a remote session has none, and gets the values with the action's result
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
    """Return the numbers of a job's stages, with one Java call for all."""
    return [int(each) for each in job.stageIds().mkString(",").split(",") if each]
