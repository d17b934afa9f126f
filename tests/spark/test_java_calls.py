"""The calls of Java for each batch: each costs the driver time. Java is played."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkcoord.spark.meter import StageMeter, figures
from zkcoord.spark.options import Options
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.readers import kafka
from zkcoord.spark.readers.kafka import KafkaReader, connector_options
from zkcoord.spark.stream import batches as of_ranges
from zkcoord.spark.stream.batches import COLUMNS, _Run

RANGES = (OffsetRange("t", 0, 5, 8),)
LATER = (OffsetRange("t", 3, 0, 2),)


class Loaded(dict[str, str]):
    """A DataFrame: the options that it was made with, the partitions of its topic that it reads, and the number of
    tasks."""

    def __init__(self, options: Mapping[str, str], reads: Sequence[str] = ()) -> None:
        super().__init__(options)
        self.reads = reads or [" ".join(map(str, json.loads(options["assign"]).get("t", ())))]

    def coalesce(self, tasks: int) -> Loaded:
        return Loaded(self, [f"{self.reads[0]} in {tasks}"])

    def union(self, other: Loaded) -> Loaded:
        return Loaded(self, [*self.reads, *other.reads])


class Reading:
    """Spark's `DataFrameReader`: it keeps its options, and notes every call."""

    def __init__(self, given: list[str]) -> None:
        self._given, self._options = given, dict[str, str]()

    def format(self, name: str) -> Reading:
        self._given.append(name)
        return self

    def options(self, **options: str) -> Reading:
        self._given += options
        self._options |= options
        return self

    def load(self) -> Loaded:
        return Loaded(self._options)


class Session:
    """A classic session. Each `read` is a new reader."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.conf = SimpleNamespace(get=lambda name: "")

    @property
    def read(self) -> Reading:
        return Reading(self.given)


class RemoteSession(Session):
    """A session of Spark Connect, which is recognised by the name of its module."""


RemoteSession.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(("kind", "again"), [(Session, 3), (RemoteSession, None)])
def test_java_is_told_the_options_that_stay_once_but_a_remote_session_with_each_batch(
    monkeypatch: pytest.MonkeyPatch, kind: type[Session], again: int | None
) -> None:
    monkeypatch.setattr(kafka, "_quiet", lambda spark: None)
    session: Any = kind()
    options = connector_options("h:1", "g", Options())
    reader = KafkaReader(session, options)
    first = reader.read(RANGES)
    told = len(session.given)
    second = reader.read(LATER)
    assert (first, second) == ({**options, **kafka.assignment(RANGES)}, {**options, **kafka.assignment(LATER)})
    assert (told, len(session.given)) == (1 + len(options) + 3, told + (again or told))


@pytest.mark.parametrize(
    ("sizes", "loads"),
    [
        ((4, 4, 4, 4, 4), ["0 1 2 3 4 in 2"]),
        ((4, 20, 4, 30, 1), ["1 3", "0 2 4 in 1"]),
        ((10, 20, 9), ["0 1 2"]),
        ((10, 20), ["0 1"]),
    ],
)
def test_ranges_below_the_least_of_a_task_share_tasks_and_others_have_their_own(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], loads: list[str]
) -> None:
    monkeypatch.setattr(kafka, "_quiet", lambda spark: None)
    reader = KafkaReader(cast(Any, Session()), connector_options("h:1", "g", Options(min_offsets_per_task=10)))
    ranges = [OffsetRange("t", number, 5, 5 + size) for number, size in enumerate(sizes)]
    assert cast(Loaded, reader.read(ranges)).reads == loads


class JavaMap:
    """A Java map of figures. As with the real one, iteration raises an exception."""

    def __init__(self, **figures: int | None) -> None:
        self.get = figures.get

    def __iter__(self) -> None:
        raise AssertionError("its figures are asked for by their names")


@pytest.mark.parametrize(
    ("told", "found"),
    [({"rows": 7, "bytes": 9}, {"rows": 7, "bytes": 9}), ({"rows": 0, "bytes": None}, {"rows": 0}), ({}, {})],
)
def test_figures_are_asked_for_by_name(told: dict[str, int | None], found: dict[str, int]) -> None:
    done = SimpleNamespace(isCompleted=lambda: True)
    seen: Any = SimpleNamespace(_jo=SimpleNamespace(future=lambda: done, getAsJava=lambda: JavaMap(**told)))
    assert figures(seen, ("rows", "bytes")) == found
    done.isCompleted = lambda: False
    assert figures(seen, ("rows", "bytes"), tries=2) is None


class Ended:
    """A job with these stages. Spark's listeners know its end only at the second look."""

    def __init__(self, stages: str) -> None:
        self._statuses = ["RUNNING", "SUCCEEDED"]
        self.stages = stages

    def look(self) -> Any:
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        text = SimpleNamespace(toString=lambda: status)
        listed = "" if status == "RUNNING" else self.stages
        return SimpleNamespace(status=lambda: text, stageIds=lambda: SimpleNamespace(mkString=lambda between: listed))


@pytest.mark.parametrize(("stages", "rows"), [(("1,2", "2,3"), 6), (("", ""), None), ((), None)])
def test_rows_are_those_of_all_stages_of_the_batchs_jobs_each_once(stages: tuple[str, ...], rows: int | None) -> None:
    jobs = {number: Ended(each) for number, each in enumerate(stages)}
    store = SimpleNamespace(
        job=lambda number: jobs[number].look(),
        lastStageAttempt=lambda stage: SimpleNamespace(inputRecords=lambda: stage),
    )
    tracker = SimpleNamespace(getJobIdsForTag=lambda tag: list(jobs))
    java = SimpleNamespace(statusStore=lambda: store, statusTracker=lambda: tracker)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java)))
    assert StageMeter(spark).read("tag") == (rows, None)


def test_each_run_of_a_query_is_looked_up_once_and_has_a_reader_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_ranges, "_running", lambda spark: looked.append(spark._jsparkSession))
    monkeypatch.setattr(of_ranges, "KafkaReader", lambda spark, options: (spark._jsparkSession, options))
    looked: list[str] = []
    this, again, other = (SimpleNamespace(_jsparkSession=name) for name in ("one", "one", "two"))  # as Spark wraps it
    run: Any = _Run(this)  # type: ignore[arg-type]
    assert (run.has(again), run.has(other), looked) == (True, False, ["one"])
    assert run.reader({"a": "1"}) is run.reader({"a": "1"})
    assert run.reader({"a": "2"}) == ("one", {"a": "2"})


def test_a_foreachbatch_function_follows_its_queries_and_skips_rangeless_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_ranges, "_running", lambda spark: looked.append(spark._jsparkSession))
    monkeypatch.setattr(_Run, "planned", lambda run: ([], {}))
    looked: list[str] = []
    process = of_ranges.batches(lambda df, batch: looked.append("processed"))
    for name in ("one", "one", "two", "one"):
        frame: Any = SimpleNamespace(columns=COLUMNS, sparkSession=SimpleNamespace(_jsparkSession=name))
        process(frame, 0)
    assert looked == ["one", "two", "one"]
