"""A run whose own thread is interrupted anywhere: by an exception that a signal's handler raises, or by its `stop`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.interrupted import at_call
from tests.spark.fakes import FakeMembership, Positions, World
from zkcoord.core.model import TopicPartition
from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FILES = tuple(f"zkcoord/spark/{name}.py" for name in ("driver/loop", "driver/announcing", "driver/batch_guard"))


def raised() -> None:
    raise KeyboardInterrupt


def interrupted(
    number: int, act: Callable[[SparkConsumer], None]
) -> tuple[list[str], World, dict[TopicPartition, int]]:
    """Run two batches, and `act` at this call. Return where that was, and how far `process` has come."""
    world = World()
    world.given, world.ends = {A: 0, B: 0}, {A: 10, B: 5}
    world.limits = Limits(cancel_wait_ms=100)
    processed = {A: 0, B: 0}

    def process(frame: object, batch: Batch) -> None:
        processed.update({each.topic_partition: each.end for each in batch.ranges})
        world.ends[A] += 3

    consumer = world.consumer(rebalance_timeout_ms=500)
    try:
        with at_call(number, FILES, lambda: act(consumer)) as found:
            consumer.run(process, max_batches=2)
    except KeyboardInterrupt:
        pass
    return found, world, processed


def test_f328_an_exception_anywhere_in_a_batch_neither_hangs_nor_sets_offsets_back() -> None:
    wrong = []
    for number in itertools.count(1):
        found, world, processed = interrupted(number, lambda consumer: raised())
        if not found:
            break
        committed = {A: 0, B: 0}
        for each in world.commits:
            committed.update(each)
        final = {**committed, **(world.final or {})}
        ended = world.cancelled == [] and world.events.count("join") == world.events.count("leave")
        if not ended or any(final[each] < committed[each] or final[each] > processed[each] for each in (A, B)):
            wrong.append((found[0], final, committed, processed, world.cancelled))
    assert (wrong, number > 100) == ([], True)


def test_f328_a_signals_handler_may_stop_a_run_anywhere() -> None:
    for number in itertools.count(1):
        found, world, _ = interrupted(number, lambda consumer: consumer.stop())
        if not found:
            break
        assert world.events.count("join") == world.events.count("leave"), found
    assert number > 100


def test_f328_a_commit_whose_answer_was_not_waited_for_is_not_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: FakeMembership, offsets: Positions, starts: Positions | None = None) -> None:
        self.world.commits.append(offsets)
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeMembership, "commit", commit)
    _, world, _ = interrupted(0, lambda consumer: None)
    assert (world.commits, world.final) == ([{A: 10, B: 5}], {})


def test_f328_a_signals_handler_may_stop_a_run_that_was_stopped_before() -> None:
    consumer = World().consumer()
    consumer.stop()
    with at_call(2, FILES, consumer.stop) as found:
        assert consumer.run(lambda frame, batch: None) == 0
    assert found[0].startswith("leave ")
