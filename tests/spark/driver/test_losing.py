"""What happens to a batch that fails without a fault of its own, and what probes are told during a long batch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spark.fakes import DEADLINE_S, InThread, Job, World
from tests.waiting import wait_until
from zkcoord.consumer import Consumer
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.options import Options
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> World:
    made = World()
    made.given = {A: 0}
    made.ends = {A: 10}
    return made


@pytest.mark.parametrize(
    ("moment", "announce"), [("while_planning", True), ("while_planning", False), ("before_announcement", True)]
)
def test_f126_a_batch_whose_lease_ended_before_it_was_begun_is_not_handed_out(
    world: World, moment: str, announce: bool
) -> None:
    seen: list[bool] = []

    def lease_ends() -> None:  # the command that tells of it is still on its way
        world.leased = False

    getattr(world, moment).append(lease_ends)
    running = InThread(
        lambda: world.consumer(announce=announce).run(lambda frame, batch: seen.append(world.leased), max_batches=1)
    )
    wait_until(lambda: world.lost == 1 or seen != [], what="the batch is dropped")
    assert seen == []
    world.leased = True
    assert running.result() == 1
    assert seen == [True]
    assert world.commits == [{A: 10}]


def test_a_batch_that_kafka_left_is_read_again_when_kafka_answers(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Batch] = []

    def process(frame: object, batch: Batch) -> None:
        seen.append(batch)
        if batch.seq == 0:
            raise UnavailableError("a trace\n: TimeoutException: no position\n\tat a line")

    assert world.consumer().run(process, max_batches=1) == 1
    assert [str(each.ranges[0]) for each in seen] == ["t-0-0-10"] * 2
    assert seen[0].id == seen[1].id
    assert world.commits == [{A: 10}]
    (told,) = [each.message for each in caplog.records if getattr(each, "zkcoord_event", "") == "batch_failed"]
    assert told == "batch 0 failed since Kafka is away: : TimeoutException: no position"


def test_a_kafka_that_tells_its_ends_and_never_its_records_is_raised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits = Limits(away_wait_ms=(1, 1))
    seen: list[Batch] = []

    def process(frame: object, batch: Batch) -> None:
        seen.append(batch)
        raise UnavailableError("nothing came")

    with pytest.raises(UnavailableError, match="nothing came"):
        world.consumer().run(process)
    assert len(seen) == world.limits.away_batches_max + 1
    assert world.commits == []
    assert world.events[-1] == "leave"


@pytest.mark.parametrize(
    ("looks", "progress"),
    [([5, 6, 6, 7], 2), ([5, None, 6, None], 1), ([5, 5, 5, 5], 0), ([None, None, None, None], 0)],
    ids=["gets on", "gets on unseen", "hangs", "unknown"],
)
def test_a_long_batch_makes_progress_as_long_as_its_jobs_get_on(
    world: World, monkeypatch: pytest.MonkeyPatch, looks: list[Any], progress: int
) -> None:
    world.limits = Limits(look_ms=1)
    world.ends = {A: 30}
    calls = itertools.count()
    looked = threading.Event()

    def activity(tag: str) -> object:
        call = next(calls)
        if call == len(looks):  # what the looks before it have told is reported
            looked.set()
        return looks[min(call, len(looks) - 1)]

    world.activity = activity  # type: ignore[method-assign]
    reported: list[Any] = []

    def process(frame: object, batch: Batch) -> None:
        assert looked.wait(DEADLINE_S)
        reported.append(world.member.reported)

    world.consumer(max_offsets_per_batch=10).run(process, max_batches=1)
    assert reported == [(progress, 30)]
    assert world.member.reported == (progress + 10, 20)


def test_a_consumer_hanging_in_a_lost_batch_registers_once_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits = Limits(cancel_wait_ms=1)
    begun, over = threading.Event(), threading.Event()

    def hang(frame: object, batch: Batch) -> None:
        begun.set()
        assert over.wait(DEADLINE_S)

    consumer = world.consumer()
    running = InThread(lambda: consumer.run(hang))
    assert begun.wait(DEADLINE_S)
    assert world.member.ready()
    world.member.lose(A)
    assert not world.member.ready()
    consumer.stop()
    over.set()
    assert running.result() == 0
    assert world.member.ready()
    assert world.commits == []


def test_a_batch_that_is_lost_before_its_jobs_have_their_tag_is_not_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits = Limits(cancel_wait_ms=1)

    @contextmanager
    def running(tag: str, description: str) -> Iterator[None]:
        if not seen:
            InThread(lambda: world.member.lose(A)).result()
            consumer.stop()
        yield

    world.running = running  # type: ignore[method-assign,assignment]
    seen: list[Batch] = []
    consumer = world.consumer(announce=False)
    assert consumer.run(lambda frame, batch: seen.append(batch)) == 0
    assert (seen, world.lost) == ([], 1)


def test_f59_a_batch_is_cancelled_while_kafka_does_not_answer_the_reset_question(world: World) -> None:
    asked, answered = threading.Event(), threading.Event()

    def not_answered(partitions: Any, policy: Any) -> dict[TopicPartition, int]:
        asked.set()
        answered.wait()  # longer than the consumer waits for the loss
        return dict.fromkeys(partitions, 0)

    def membership(**callbacks: Any) -> Consumer:
        """The real membership with its threads. Its loop is played, and reaches no ZooKeeper."""
        dependencies = RealDependencies(None, "127.0.0.1:1", "127.0.0.1:1", "g", ["t"], Options())
        made = dependencies.membership(**callbacks)
        assert isinstance(made, Consumer)
        made.start = made._worker.start  # type: ignore[method-assign]
        made.allowed = lambda partition: True  # type: ignore[method-assign]
        members.append(made)
        return made

    members: list[Consumer] = []
    world.reset_positions = not_answered  # type: ignore[method-assign]
    world.membership = membership  # type: ignore[method-assign,assignment]
    job = Job(world)
    consumer = world.consumer(announce=False)
    running = InThread(lambda: consumer.run(job))
    wait_until(lambda: members, "a membership")
    worker = members[0]._worker
    worker.call(1, "start", Starting({A: 0}, 1))
    job.await_begun(1)
    worker.call(2, "reset", (B,))
    assert asked.wait(DEADLINE_S)
    worker.call(3, "lost", (A,))
    wait_until(lambda: world.lost == 1, "the batch is broken off")
    assert world.cancelled != []
    answered.set()
    consumer.stop()
    assert running.result() == 0
    worker.stop(DEADLINE_S)
