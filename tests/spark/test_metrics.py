"""The metrics about batches that a Spark consumer and a streaming query serve over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metrics.test_endpoint import free_address, get, value
from tests.spark.fakes import InThread, Job, World
from tests.spark.streams import Stream
from tests.spark.together import ON_REAL_SERVERS
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.metrics.endpoint import Endpoint, Part
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

BATCHES, OFFSETS, SECONDS = "zkcoord_spark_batches_total", "zkcoord_spark_offsets_total", "zkcoord_spark_batch_seconds"
PARTS = ("drain", "plan", "process", "commit", "acknowledge")


@pytest.fixture
def address() -> Iterator[str]:
    """The address of an endpoint that listens. A real membership starts it; here the test plays the membership."""
    found = free_address()
    part, endpoint = Part("member", lambda: None, lambda: None), Endpoint.at(found)
    endpoint.add(part)
    yield found
    endpoint.remove(part)


def batches(address: str, group: str = "g") -> tuple[float | None, ...]:
    """Return the numbers of committed batches, of lost batches, and of offsets of the committed batches."""
    by_outcome = [value(address, BATCHES, group=group, outcome=outcome) for outcome in ("committed", "lost")]
    return (*by_outcome, value(address, OFFSETS, group=group))


def test_a_consumers_batches_are_counted_while_it_runs(address: str) -> None:
    world = World()
    world.given, world.ends = {TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 30}
    job = Job(world)
    consumer = world.consumer(metrics=address, max_offsets_per_batch=10)
    running = InThread(lambda: consumer.run(job, max_batches=3))
    for done in range(3):
        job.await_begun(done + 1)
        assert batches(address) == (done, 0, 10 * done)
        job.let_go()
    running.result()
    assert batches(address) == (None, None, None), "who has left is not shown"


def test_a_batchs_time_is_shown_by_its_parts(address: str) -> None:
    world = World()
    world.given, world.ends = {TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 20}
    job = Job(world)
    consumer = world.consumer(metrics=address, max_offsets_per_batch=10)
    running = InThread(lambda: consumer.run(job, max_batches=2))
    job.await_begun(1)
    job.let_go()
    job.await_begun(2)
    shown = {part: value(address, f"{SECONDS}_total", group="g", part=part) for part in PARTS}
    sums = consumer.metrics
    assert shown == {part: getattr(sums, f"{part}_ms") / 1000 for part in PARTS}
    job.let_go()
    running.result()


def test_a_query_with_the_option_serves_the_same(address: str) -> None:
    world = World()
    world.given, world.ends = {TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 10}
    options = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t", "metrics": address}
    source = Source(stream_options(options), world, "run")
    source.latest(None)
    assert batches(address) == (0, 0, 0)
    world.ends = {TopicPartition("t", 0): 15}
    source.latest(None)
    wait_until(lambda: batches(address) == (1, 0, 10), "the batch that is complete is counted")
    source.stop()


class TestOnRealServers:
    """In the process in which Spark runs the source."""

    pytestmark = ON_REAL_SERVERS

    def test_a_real_query_serves_its_batches_and_that_it_is_ready(self, stream: Stream, tmp_path: Path) -> None:
        address = free_address()
        stream.topic.fill(0, 5)
        query = stream.start("first", tmp_path / "first", metrics=address)
        wait_until(
            lambda: get(address, "/readyz")[0] == 200 and batches(address, stream.group) == (1, 0, 5),
            "its batch is counted",
        )
        query.stop()
        wait_until(lambda: get(address, "/healthz")[0] == 0, "who has left is not there")
