"""How batches end early or are kept short (stop, stop commands, times), and how a consumer reports it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.fakes import DEADLINE_S, InThread, Job, World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.driver.pace import Pace
from zkcoord.spark.driver.watch import CommandTimes
from zkcoord.spark.progress import Metrics
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.starting import StartingPoints

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def ranges(batches: list[Batch]) -> list[list[str]]:
    return [[str(each) for each in batch.ranges] for batch in batches]


def await_ask(world: World) -> None:
    """Return when the consumer has asked for the ends once more."""
    world.asked.clear()
    assert world.asked.wait(DEADLINE_S)


# ---- stop


@pytest.mark.parametrize(("at_stop", "cancel"), [("cancel", None), ("finish", True)])
def test_stop_can_cancel_the_running_batch_which_is_then_not_committed(
    world: World, at_stop: Any, cancel: bool | None
) -> None:
    job = Job(world)
    consumer = world.consumer(at_stop=at_stop)
    running = InThread(lambda: consumer.run(job))
    job.await_begun(1)
    consumer.stop(cancel=cancel)
    assert running.result() == 0
    assert (world.commits, world.final) == ([], {A: 0, B: 100})
    assert (len(world.cancelled) > 0, world.lost, consumer.metrics.lost) == (True, 1, 1)
    assert world.events[-1] == "leave"


@pytest.mark.parametrize("at_stop", ["finish", "cancel"])
def test_a_stop_while_a_batch_is_planned_lets_none_begin(world: World, at_stop: Any) -> None:
    job = Job(world)
    consumer = world.consumer(at_stop=at_stop)
    world.while_planning = [consumer.stop]
    assert InThread(lambda: consumer.run(job)).result() == 0
    assert (job.seen, world.announced, world.commits, world.final) == ([], [], [], {A: 0, B: 100})


def test_stop_can_finish_the_running_batch_although_the_consumer_cancels_by_itself(world: World) -> None:
    job = Job(world)
    consumer = world.consumer(at_stop="cancel")
    running = InThread(lambda: consumer.run(job))
    job.await_begun(1)
    consumer.stop(cancel=False)
    job.let_go()
    assert running.result() == 1
    assert world.commits == [{A: 10, B: 130}]


def test_a_stop_command_can_cancel_the_batch_and_the_rest_of_it_is_read_again(world: World) -> None:
    job = Job(world)
    consumer = world.consumer(at_rebalance="cancel")
    running = InThread(lambda: consumer.run(job, max_batches=1))
    job.await_begun(1)
    assert world.member is not None
    assert world.member.take(A) == {A: 0}
    job.await_begun(2)
    job.let_go()
    assert running.result() == 1
    assert ranges(job.seen) == [["t-0-0-10", "t-1-100-130"], ["t-1-100-130"]]
    assert world.commits == [{B: 130}]


def test_a_stop_command_for_what_the_batch_does_not_read_cancels_nothing(world: World) -> None:
    world.ends = {A: 10, B: 100}
    job = Job(world)
    consumer = world.consumer(at_rebalance="cancel")
    running = InThread(lambda: consumer.run(job, max_batches=1))
    job.await_begun(1)
    assert world.member is not None
    assert world.member.take(B) == {B: 100}
    assert world.cancelled == []
    job.let_go()
    assert running.result() == 1
    assert world.commits == [{A: 10}]


# ---- time


def test_a_batch_that_nears_the_rebalance_timeout_is_warned_about_while_it_runs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "zkcoord_event", "") == "batch_slow":
                job.let_go()

    job, watch = Job(world), Watch()
    logging.getLogger("zkcoord.spark").addHandler(watch)
    try:
        consumer = world.consumer(rebalance_timeout_ms=20)
        assert consumer.run(job, max_batches=1) == 1  # the batch ends because the warning released it
    finally:
        logging.getLogger("zkcoord.spark").removeHandler(watch)
    assert "a stop waits at most 20 ms for it, and then drops it: raise rebalance_timeout_ms" in caplog.text


def test_batches_that_take_too_long_become_smaller_and_grow_again() -> None:
    pace = Pace(max_offsets=100_000, min_batch_ms=0, max_batch_ms=1_000)
    sizes = []
    for took_ms in (4_000, 1_500, 900, 400, 400, 100, 100, 100):
        pace.ended(pace.offsets, took_ms)
        sizes.append(pace.offsets)
    assert sizes == [25_000, 16_666, 16_666, 33_332, 66_664, 100_000, 100_000, 100_000]


def test_a_batch_that_is_slow_whatever_its_size_does_not_shrink_to_nothing() -> None:
    pace = Pace(max_offsets=100_000, min_batch_ms=0, max_batch_ms=1_000)
    for _ in range(50):
        pace.ended(pace.offsets, 60_000)
    assert pace.offsets == 1_000


def test_a_batch_that_is_not_full_waits_and_one_that_is_full_does_not(world: World) -> None:
    world.given, world.ends = {A: 0}, {A: 25}
    seen: list[Batch] = []

    def process(frame: object, batch: Batch) -> None:
        seen.append(batch)
        if batch.seq == 1:
            consumer.stop()

    consumer = world.consumer(max_offsets_per_batch=10, min_batch_ms=100_000)
    assert consumer.run(process) == 2
    assert ranges(seen) == [["t-0-0-10"], ["t-0-10-20"]]
    seen.clear()
    world.given = {A: 20}
    consumer = world.consumer(max_offsets_per_batch=10, min_batch_ms=100_000)
    running = InThread(lambda: consumer.run(lambda frame, batch: seen.append(batch)))
    assert world.idle_told.wait(DEADLINE_S)  # the five were read at once, since nothing was before them
    world.ends = {A: 26}
    await_ask(world)  # by then, whoever asked for the ends before has told what follows from them
    world.idle_told.clear()
    await_ask(world)
    await_ask(world)
    assert not world.idle_told.is_set()
    consumer.stop()
    assert running.result() == 1
    assert ranges(seen) == [["t-0-20-25"]]


# ---- where to start


def test_each_topic_starts_where_its_policy_says(world: World) -> None:
    u, v = TopicPartition("u", 0), TopicPartition("v", 0)
    world.given, world.ends = {}, {A: 10, u: 20, v: 30}
    world.starts, world.at_time = {A: 1, u: 2, v: 3}, {A: 5, u: 6, v: 7}
    starts = {"t": "earliest", "u": datetime(2026, 1, 1, tzinfo=UTC), "*": "latest"}
    world.consumer(topics=["t", "u", "v"], starting_offsets=starts).run(lambda frame, batch: None, idle_timeout_ms=0)
    assert world.member is not None
    assert world.member.reset((v, u, A)) == {A: 1, u: 6, v: 30}


@pytest.mark.parametrize(
    ("policy", "positions"), [(None, {A: 0}), ("earliest", {A: 0}), ("latest", {A: 10}), ("fail", None)]
)
def test_a_position_out_of_range_goes_where_its_own_policy_says(
    world: World, policy: Any, positions: dict[TopicPartition, int] | None
) -> None:
    world.given = {A: 500}
    consumer = world.consumer(starting_offsets={"*": "earliest"}, out_of_range=policy)
    if positions is None:
        with pytest.raises(UsageError, match=r"t-0: offset 500 lies behind the log's end.*out_of_range='earliest'"):
            consumer.run(lambda frame, batch: None, idle_timeout_ms=0)
        assert world.events[-1] == "leave"
    else:
        consumer.run(lambda frame, batch: None, idle_timeout_ms=0)
    assert world.commits[:1] == ([] if positions is None else [positions])


def test_a_position_that_its_log_reaches_before_it_is_moved_stays(world: World) -> None:
    """If the position were moved to the log's end, the records that came in between would be skipped."""
    world.given, world.ends = {A: 30}, {A: 10}
    answers = world.reset_positions

    def later(partitions: Collection[TopicPartition], policy: str | int) -> dict[TopicPartition, int]:
        world.ends = {A: 35}
        return answers(partitions, policy)

    world.reset_positions = later  # type: ignore[method-assign]
    seen: list[Batch] = []
    world.consumer(out_of_range="latest").run(lambda frame, batch: seen.append(batch), idle_timeout_ms=0)
    assert ranges(seen) == [["t-0-30-35"]]
    assert world.commits == [{A: 35}]


def test_records_deleted_under_a_batch_end_a_run_that_must_not_skip_them(world: World) -> None:
    def process(frame: object, batch: Batch) -> None:
        world.starts = {A: 6}
        raise RuntimeError("some data may have been lost")

    with pytest.raises(UsageError, match="lies before the log's start"):
        world.consumer(out_of_range="fail").run(process)
    assert world.commits == []


@pytest.mark.parametrize("wrong", ["newest", datetime(2026, 1, 1), {"t": 7}, None])
def test_a_start_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="starting_offsets"):
        StartingPoints(wrong)


# ---- what is told


def test_every_batch_is_reported_and_summed_up(world: World) -> None:
    world.given, world.ends = {A: 0}, {A: 25}
    told: list[tuple[int, int, int | None]] = []
    consumer = world.consumer(
        max_offsets_per_batch=10, on_report=lambda report: told.append((report.offsets, report.lag, report.rows))
    )
    consumer.run(lambda frame, batch: None, idle_timeout_ms=0)
    assert told == [(10, 15, 5), (10, 5, 5), (5, 0, 5)]
    sums = consumer.metrics
    assert sums == Metrics(
        batches=3,
        offsets=25,
        rows=15,
        bytes=150,
        drain_ms=sums.drain_ms,
        plan_ms=sums.plan_ms,
        process_ms=sums.process_ms,
        commit_ms=sums.commit_ms,
        acknowledge_ms=sums.acknowledge_ms,
    )


def test_command_times_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 2_000_000, 10_000_000, 15_000_000, 20_000_000, 23_000_000])
    monkeypatch.setattr("zkcoord.spark.driver.watch.time", SimpleNamespace(monotonic_ns=clock.__next__))
    times = CommandTimes()
    with times.measuring("drain"):
        pass
    with times.measuring("acknowledge"):
        pass
    with times.measuring("drain"):
        pass
    assert (times.take(), times.take()) == ((5, 5), (0, 0))


def test_workers_without_confluent_kafka_are_told_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader_python = pytest.importorskip("zkcoord.spark.readers.python")
    from zkcoord.spark.readers.ranges import PythonReader

    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    slices = reader_python.read_slices({}, [reader_python.Slice("t", 0, 0, 1)])
    with pytest.raises(RuntimeError, match="lack confluent-kafka") as told:
        next(slices)
    reader = PythonReader.__new__(PythonReader)
    reader._module = reader_python
    trace = RuntimeError(f"An error occurred while calling o1.save: PythonException: {told.value}")
    assert "pip install 'zkcoord[kafka]'" in str(reader.lacks(trace))
    assert reader.lacks(RuntimeError("something else")) is None


@pytest.mark.parametrize(("most", "parts"), [(None, 1), (100, 1), (99, 2), (1, 100)])
def test_a_large_range_is_split_without_gap(most: int | None, parts: int) -> None:
    pytest.importorskip("pyspark")
    from zkcoord.spark.readers.ranges import split

    found = split(OffsetRange("t", 0, 50, 150), most)
    assert len(found) == parts
    edges = [found[0].start, *(each.end for each in found)]
    assert (edges[0], edges[-1]) == (50, 150)
    assert [each.start for each in found] == edges[:-1]
    assert max(each.end - each.start for each in found) <= (most or 100)
