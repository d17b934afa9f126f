"""A stop comes in the middle of a batch. It waits for the batch as long as it may, or cancels it (`at_rebalance`).

In both cases nothing of the batch is committed, and its announced ranges are processed unchanged: by the next owner of
the partition that moves, and by the consumer itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.world import World
from tests.spark.fakes import InThread
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, Seen, endless
from tests.waiting import wait_until
from zkcoord.spark import Batch, OffsetRange, SparkConsumer
from zkcoord.spark.driver.watch import NEAR_SHARE
from zkcoord.tree.paths import DRAFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS
TIMEOUT_MS = 2_000  # on a busy machine another batch may take longer, but that one is not stopped


class Scene:
    """A consumer whose first batch ends only if it is cancelled, and an heir that joins during that batch."""

    def __init__(self, spark: SparkSession, topic: Topic, world: World, **choices: Any) -> None:
        self.seen = Seen()
        self.batches: list[tuple[str, Batch]] = []  # in the order in which they began
        self.hanging = threading.Event()
        self._world = world
        self._consumers = {
            name: SparkConsumer(
                *(spark, world.zookeeper, topic.bootstrap_servers, "g", [topic.name]),
                warm_up=lambda df: None,  # the heir's warm-up would wait for a core until the batch ends
                **choices,
            )
            for name in ("first", "heir")
        }
        self._running: dict[str, InThread] = {}

    def run(self, name: str) -> None:
        """Begin to consume."""
        process, consumer = self.seen.process_as(name), self._consumers[name]

        def work(df: DataFrame, batch: Batch) -> None:
            self.batches.append((name, batch))
            if name == "first" and batch.seq == 0:
                self.hanging.set()
                endless(df)
            process(df, batch)

        self._running[name] = InThread(lambda: consumer.run(work))

    def offsets(self) -> list[bytes]:
        """Return the group's offsets of the first batch's partitions."""
        return [self._world.data(DRAFT.offset("g", each.topic_partition)) for each in self.batches[0][1].ranges]

    def end(self) -> None:
        """Stop both consumers. Each has committed a batch, and only the first has lost one."""
        for name, running in self._running.items():
            self._consumers[name].stop()
            assert running.result() >= 1
        assert [each.metrics.lost for each in self._consumers.values()] == [1, 0]


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """The warnings of consumers about a batch: the name and the fields of each event."""
    found: list[dict[str, Any]] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = getattr(record, "zkcoord_event", "")
            if event in ("batch_slow", "batch_lost"):
                found.append({"event": event, **record.__dict__["zkcoord_fields"]})

    handler, logger = Listening(), logging.getLogger("zkcoord.spark")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


@pytest.mark.parametrize("at_rebalance", ["finish", "cancel"])
def test_a_batch_that_is_in_a_stops_way_is_done_again_where_its_partitions_are_then(
    spark: SparkSession,
    make_topic: Callable[[int], Topic],
    chroot: str,
    told: list[dict[str, Any]],
    at_rebalance: str,
) -> None:
    topic = make_topic(2)
    topic.show_in(chroot)
    topic.fill(0, 20)
    topic.fill(1, 10)
    whole = [OffsetRange(topic.name, 0, 0, 20, 1), OffsetRange(topic.name, 1, 0, 10, 1)]
    choices = {"rebalance_timeout_ms": TIMEOUT_MS} if at_rebalance == "finish" else {"at_rebalance": "cancel"}
    with World(chroot) as world:
        for each in whole:  # so that no start has to ask Kafka, and both are one start
            world.put(DRAFT.offset("g", each.topic_partition), b"0")
        world.coordinate(**topic.source)
        scene = Scene(spark, topic, world, **choices)
        scene.run("first")
        assert scene.hanging.wait(DEADLINE_S)
        if at_rebalance == "finish":
            wait_until(lambda: bool(told), "a batch that nears the timeout is warned about while it runs")
        assert scene.offsets() == [b"0", b"0"]
        scene.run("heir")
        scene.seen.wait_for(lambda: len(scene.seen.records) == 30)
        begun = [(name, batch.replayed, list(batch.ranges)) for name, batch in scene.batches]
        topic.fill(0, 5)
        topic.fill(1, 5)
        scene.seen.wait_for(lambda: len(scene.seen.records) == 40)
        scene.end()
        assert scene.offsets() == [b"25", b"15"]
    assert set(scene.seen.records.values()) == {1}
    assert begun[0] == ("first", False, whole)
    again = {name: (replayed, ranges) for name, replayed, ranges in begun[1:]}
    assert len(again) == len(begun[1:]) == 2
    assert sorted(again.values(), key=lambda each: each[1]) == [(True, [each]) for each in whole]
    first = scene.batches[0][1]
    check_told([each for each in told if each["batch"] == first.id], first, at_rebalance)


def check_told(told: list[dict[str, Any]], batch: Batch, at_rebalance: str) -> None:
    """Check the warnings about the batch: first that it may be dropped and why, then that it was dropped and why."""
    dropped = {
        "finish": f"a stop waited {TIMEOUT_MS} ms for it: raise rebalance_timeout_ms, or lower max_offsets_per_batch",
        "cancel": "a stop cancels it (at_rebalance)",
    }[at_rebalance]
    assert told.pop() == {
        "event": "batch_lost",
        "group": "g",
        "batch": batch.id,
        "seq": 0,
        "generation": batch.generation,
        "ranges": [str(each) for each in batch.ranges],
        "why": f"batch 0 of group g is not committed: {dropped}",
    }
    if at_rebalance == "cancel":
        assert told == []
        return
    (slow,) = told
    took_ms = slow["took_ms"]
    assert took_ms >= TIMEOUT_MS * NEAR_SHARE
    assert slow == {
        "event": "batch_slow",
        "group": "g",
        "batch": batch.id,
        "seq": 0,
        "took_ms": took_ms,
        "rebalance_timeout_ms": TIMEOUT_MS,
        "why": f"batch 0 of group g runs for {took_ms} ms; a stop waits at most {TIMEOUT_MS} ms for it, and then "
        "drops it: raise rebalance_timeout_ms, or lower max_batch_ms or max_offsets_per_batch",
    }
