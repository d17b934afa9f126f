"""A Spark consumer and a streaming query beside old consumers, which wait for a partition only for a limited time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.spark.fakes import FakeMembership, InThread, Job, World
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.spark.driver.pace import LEAST_OFFSETS
from zkcoord.spark.options import Options
from zkcoord.spark.ranges import Batch
from zkcoord.spark.stream.offsets import ranges_in
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
QUERY = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}


@pytest.fixture
def world() -> World:
    made = World()
    made.given = {A: 0, B: 0}
    made.ends = {A: 10, B: 5}
    return made


def member_of(world: World) -> FakeMembership:
    assert world.member is not None
    return world.member


def test_f108_a_running_batch_is_cancelled_and_not_committed_once_old_consumers_wait_no_longer(world: World) -> None:
    job = Job(world)
    consumer = world.consumer()
    running = InThread(lambda: consumer.run(job, max_batches=1))
    job.await_begun(1)
    member = member_of(world)
    stopping = InThread(lambda: member.take(A))
    wait_until(lambda: A not in consumer._guard.view().holds, "the stop has begun")
    assert world.cancelled == []
    member.held.discard(A)  # the membership has given it up; `on_lost` comes after the return of `on_stop`
    assert stopping.result() == {A: 0}
    member.lose(A)
    again = job.await_begun(2)
    job.let_go()
    assert running.result() == 1
    assert len(world.cancelled) >= 1
    assert [str(each) for each in again.ranges] == ["t-1-0-5"]  # the partition that it kept is read again
    assert world.commits == [{B: 5}]


def test_f108_a_query_commits_nothing_of_a_batch_that_an_old_consumer_took(
    world: World,
) -> None:
    source = Source(stream_options(QUERY), world, "run")
    last = source.latest(None)
    member = member_of(world)
    stopping = InThread(lambda: member.take(A))
    wait_until(lambda: A not in source._consumer._guard.view().holds, "the stop has begun")
    member.held.discard(A)
    wait_until(lambda: source._consumer._guard.fenced, "the batch is fenced")
    assert [str(each) for each in ranges_in(source.latest(last))] == ["t-1-0-5"]
    assert stopping.result() == {A: 0}
    assert world.commits == []
    source.stop()


@pytest.mark.parametrize(
    ("within_ms", "asked_ms", "longest_ms"),
    [(None, None, 150_000), (5_000, None, 2_500), (5_000, 900, 900), (5_000, 4_000, 2_500), (1_500, None, 1_000)],
)
def test_f108_a_batch_aims_at_half_of_what_old_consumers_wait(
    within_ms: int | None, asked_ms: int | None, longest_ms: int
) -> None:
    assert Options(max_batch_ms=asked_ms).longest_batch_ms(within_ms) == longest_ms


def test_f108_batches_become_smaller_once_the_adoption_tells_that_old_consumers_wait_for_less(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.given, world.ends = {A: 0}, {A: 40_000}
    now_ms = [0]
    clock = SimpleNamespace(monotonic_ns=lambda: now_ms[0] * 1_000_000)
    monkeypatch.setattr("zkcoord.spark.driver.loop.time", clock)  # not for other threads
    sizes: list[int] = []

    def process(frame: object, batch: Batch) -> None:
        sizes.append(batch.ranges[0].end - batch.ranges[0].start)
        now_ms[0] += 5_000
        if len(sizes) == 2:
            member_of(world).stop_within_ms = 5_000

    world.consumer(max_offsets_per_batch=10_000, max_batch_ms=60_000).run(process, max_batches=5)
    assert sizes == [10_000, 10_000, 10_000, 5_000, 2_500]
    assert sizes[-1] > LEAST_OFFSETS


@pytest.mark.parametrize(("longest_ms", "needs_ms"), [(None, 2_000), (300, 600)])
def test_f108_a_consumer_says_how_long_its_stop_needs_before_it_joins(
    world: World, longest_ms: int | None, needs_ms: int
) -> None:
    world.consumer(max_batch_ms=longest_ms).run(lambda frame, batch: None, max_batches=1)
    assert member_of(world).stop_needs_ms == needs_ms


def test_f108_a_query_says_so_before_it_joins_too(world: World) -> None:
    source = Source(stream_options(QUERY), world, "run")
    source.latest(None)
    assert member_of(world).stop_needs_ms == 2_000
    source.stop()
