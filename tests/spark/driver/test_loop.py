"""The driver loop with every order of commands: which ranges it reads, commits and drops."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.spark.fakes import DEADLINE_S, InThread, Job, World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def ranges(*batches: Batch) -> list[list[str]]:
    return [[str(each) for each in batch.ranges] for batch in batches]


def started(world: World, job: Callable[..., object], **run: Any) -> InThread:
    """Run the consumer in a thread, and wait until it has joined; `world.stop()` ends it."""
    consumer = world.consumer()
    world.stop = consumer.stop
    running = InThread(lambda: consumer.run(job, **run))
    assert world.joined.wait(DEADLINE_S)
    return running


def test_batches_follow_each_other_without_gap_and_are_committed_in_order(world: World) -> None:
    world.ends = {A: 25, B: 100}
    seen: list[Batch] = []
    consumer = world.consumer(max_offsets_per_batch=10)
    assert consumer.run(lambda frame, batch: seen.append(batch), idle_timeout_ms=0) == 3
    assert ranges(*seen) == [["t-0-0-10"], ["t-0-10-20"], ["t-0-20-25"]]
    assert [(each.seq, each.generation) for each in seen] == [(0, 7), (1, 7), (2, 7)]
    assert world.commits == [{A: 10}, {A: 20}, {A: 25}]
    assert world.final == {A: 25, B: 100}
    assert [each.lag for each in world.reports] == [15, 5, 0]
    assert world.member.reported == (25, 0)  # offsets done, offsets left
    assert world.member.begun == {A}


def test_a_batch_asks_for_all_ends_at_once_and_once_for_the_starts_of_new_partitions(
    world: World,
) -> None:
    consumer = world.consumer(max_offsets_per_batch=10)
    assert consumer.run(lambda frame, batch: world.requests.append(("batch", batch.seq)), max_batches=3) == 3
    joined = world.requests.index(("batch", 0)) - 2  # the warm-up comes before it
    assert world.requests[joined:] == [
        ("latest", 2),
        ("earliest", 2),
        ("batch", 0),
        ("latest", 2),
        ("batch", 1),
        ("latest", 2),
        ("batch", 2),
    ]


def test_a_partition_started_during_a_batch_takes_part_in_the_next(world: World) -> None:
    world.given = {A: 0}
    job = Job(world)
    running = started(world, job, max_batches=2)
    job.await_begun(1)
    world.member.give({B: 100})
    job.let_go(2)
    assert running.result() == 2
    assert ranges(*job.seen) == [["t-0-0-10"], ["t-1-100-130"]]


def test_a_stop_of_what_the_batch_does_not_hold_returns_at_once(world: World) -> None:
    world.ends = {A: 10, B: 100}
    job = Job(world)
    running = started(world, job, max_batches=1)
    job.await_begun(1)
    assert world.member.take(B) == {B: 100}
    assert not running.done
    job.let_go()
    running.result()
    assert world.final == {A: 10}


def test_a_stop_of_what_the_batch_holds_returns_the_offset_that_the_batch_committed(world: World) -> None:
    job = Job(world)
    running = started(world, job)
    job.await_begun(1)
    stopping = InThread(lambda: world.member.take(A))
    assert not stopping.done
    job.let_go()
    assert stopping.result() == {A: 10}
    world.stop()
    running.result()
    assert world.commits == [{A: 10, B: 130}]


@pytest.mark.parametrize("at_rebalance", ["finish", "cancel"])
def test_of_a_stop_the_part_that_the_batch_does_not_hold_is_given_up_at_once(world: World, at_rebalance: str) -> None:
    world.given = {A: 0}
    job = Job(world)
    consumer = world.consumer(at_rebalance=at_rebalance)
    running = InThread(lambda: consumer.run(job))
    job.await_begun(1)
    world.member.give({B: 100})
    stopping = InThread(lambda: world.member.take(A, B))
    assert world.early.wait(DEADLINE_S)
    assert world.released == [{"t-1": 100}]
    job.let_go()
    assert stopping.result() == {A: 10 if at_rebalance == "finish" else 0}
    consumer.stop()
    running.result()
    assert world.commits == ([{A: 10}] if at_rebalance == "finish" else [])


def test_a_partition_stopped_while_the_batch_was_planned_is_not_in_it(world: World) -> None:
    final: list[object] = []
    world.while_planning = [lambda: final.append(world.member.take(A))]
    seen: list[Batch] = []
    world.consumer().run(lambda frame, batch: seen.append(batch), max_batches=1)
    assert final == [{A: 0}]
    assert ranges(*seen) == [["t-1-100-130"]]


def test_a_partition_restarted_during_planning_is_not_in_the_batch(world: World) -> None:
    def lose_and_give() -> None:
        world.member.lose(A)
        world.member.give({A: 5})

    world.while_planning = [lose_and_give]
    seen: list[Batch] = []
    world.consumer().run(lambda frame, batch: seen.append(batch), max_batches=2)
    assert ranges(*seen) == [["t-1-100-130"], ["t-0-5-10"]]


def test_a_loss_cancels_the_batch_commits_nothing_and_the_rest_is_read_again(world: World) -> None:
    job = Job(world)
    running = started(world, job, max_batches=1)
    job.await_begun(1)
    world.member.lose(A)
    assert world.cancelled
    job.await_begun(2)
    job.let_go()
    assert running.result() == 1
    assert ranges(*job.seen) == [["t-0-0-10", "t-1-100-130"], ["t-1-100-130"]]
    assert world.commits == [{B: 130}]
    assert world.final == {B: 130}


def test_a_loss_of_what_the_batch_does_not_hold_lets_it_go_on(world: World) -> None:
    world.ends = {A: 10, B: 100}
    job = Job(world)
    running = started(world, job, max_batches=1)
    job.await_begun(1)
    world.member.lose(B)
    assert world.cancelled == []
    job.let_go()
    running.result()
    assert world.commits == [{A: 10}]


def test_a_process_that_ignores_its_cancellation_is_not_committed_either(world: World) -> None:
    def process(frame: object, batch: Batch) -> None:
        if batch.seq == 0:
            InThread(lambda: world.member.lose(A, B))
            assert cancelled.wait(DEADLINE_S)

    cancelled = threading.Event()
    world.on_cancel.append(cancelled.set)
    world.consumer().run(process, idle_timeout_ms=0)
    assert world.commits == []
    assert world.final == {}


def test_a_partition_lost_and_started_again_during_a_batch_is_not_committed_by_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(frame: object, batch: Batch) -> None:
        seen.append(batch)
        if batch.seq == 0:
            world.member.lose(A)
            world.member.give({A: 3})  # while the old batch is still there

    world.limits = Limits(cancel_wait_ms=1)  # this job does not end by being cancelled
    seen: list[Batch] = []
    world.consumer().run(process, max_batches=2)
    assert world.cancelled
    assert ranges(*seen) == [["t-0-0-10", "t-1-100-130"], ["t-1-100-130"], ["t-0-3-10"]]
    assert world.commits == [{B: 130}, {A: 10}]


def test_after_a_refused_commit_nothing_moves_and_nothing_is_read_before_the_loss_is_known(world: World) -> None:
    def refuse() -> None:
        refused.set()
        raise FencedError("the registration is gone")

    refused = threading.Event()
    world.before_commit = [refuse]
    seen: list[Batch] = []
    running = started(world, lambda frame, batch: seen.append(batch), max_batches=1)
    assert refused.wait(DEADLINE_S)
    world.member.lose(A, B)
    world.member.give({A: 4})
    assert running.result() == 1
    assert ranges(*seen) == [["t-0-0-10", "t-1-100-130"], ["t-0-4-10"]]
    assert world.commits == [{A: 10}]


def test_a_commit_that_found_no_connection_is_tried_again(world: World) -> None:
    def away() -> None:
        raise UnavailableError("ZooKeeper does not answer")

    world.before_commit = [away, away]
    assert world.consumer().run(lambda frame, batch: None, max_batches=1) == 1
    assert world.commits == [{A: 10, B: 130}]
    assert world.final == {A: 10, B: 130}


def test_after_a_commit_of_unknown_outcome_a_stop_names_no_offset(world: World) -> None:
    def away() -> None:
        InThread(lambda: world.member.lose(B)).result()
        raise UnavailableError("ZooKeeper does not answer")

    world.before_commit = [away]
    world.while_planning = [lambda: None, world.consumer]
    seen: list[Batch] = []

    def process(frame: object, batch: Batch) -> None:
        seen.append(batch)
        if batch.seq == 1:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        world.consumer().run(process)
    assert ranges(*seen) == [["t-0-0-10", "t-1-100-130"], ["t-0-0-10"]]
    assert world.final == {}


def test_a_lease_that_ends_while_a_stop_waits_cancels_the_batch(world: World) -> None:
    job = Job(world)
    running = started(world, job, idle_timeout_ms=0)
    job.await_begun(1)
    world.leased = False
    assert world.member.take(A) == {A: 0}
    assert world.cancelled
    running.result()
    assert world.commits == []


def test_a_stop_that_waits_too_long_cancels_the_batch_and_says_what_to_do(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(world)
    consumer = world.consumer(rebalance_timeout_ms=1)
    running = InThread(lambda: consumer.run(job, max_batches=1))
    job.await_begun(1)
    assert world.member.take(A) == {A: 0}
    job.await_begun(2)
    job.let_go()
    running.result()
    assert world.commits == [{B: 130}]
    assert "waited 1 ms for it: raise rebalance_timeout_ms" in caplog.text


def test_nothing_is_read_without_a_lease(world: World) -> None:
    world.leased = False
    assert world.consumer().run(lambda frame, batch: None, idle_timeout_ms=0) == 0
    assert world.commits == []


def test_a_failing_batch_is_raised_uncommitted_after_the_group_was_left(world: World) -> None:
    def fail(frame: object, batch: Batch) -> None:
        raise ValueError("bad record")

    with pytest.raises(ValueError, match="bad record"):
        world.consumer().run(fail)
    assert world.commits == []
    assert world.final == {A: 0, B: 100}
    assert world.events[1:] == ["join", "leave"]


def test_stop_lets_the_running_batch_finish_and_commit(world: World) -> None:
    job = Job(world)
    running = started(world, job)
    job.await_begun(1)
    world.stop()
    job.let_go()
    assert running.result() == 1
    assert world.commits == [{A: 10, B: 130}]
    assert world.events[-1] == "leave"


def test_stop_ends_a_consumer_that_waits_for_records_or_for_partitions(world: World) -> None:
    for given in ({A: 10}, {}):
        world.given = given
        world.joined.clear()
        running = started(world, lambda frame, batch: None)
        world.stop()
        assert running.result() == 0


def test_stop_before_run_ends_that_run_and_not_the_next(world: World) -> None:
    consumer = world.consumer()
    consumer.stop()
    assert consumer.run(lambda frame, batch: None) == 0
    assert "join" not in world.events
    assert consumer.run(lambda frame, batch: None, max_batches=1) == 1


def test_a_consumer_runs_once_at_a_time(world: World) -> None:
    consumer = world.consumer()

    def process(frame: object, batch: Batch) -> None:
        consumer.run(process)

    with pytest.raises(UsageError, match="runs already"):
        consumer.run(process)


def test_a_membership_that_ended_by_itself_is_raised(world: World) -> None:
    world.given = {}
    running = started(world, lambda frame, batch: None)
    world.member.error = UsageError("this chroot does not exist")
    world.member.give({A: 0})
    with pytest.raises(UsageError, match="chroot"):
        running.result()


def test_a_command_wakes_an_idle_consumer_without_partitions(world: World) -> None:
    world.given = {}
    job = Job(world)
    running = started(world, job, max_batches=1)
    world.member.give({A: 9})
    job.let_go()
    assert running.result() == 1


def test_kafka_away_for_a_while_is_waited_for(world: World) -> None:
    world.given = {}
    running = started(world, lambda frame, batch: None, max_batches=1)
    world.away = True
    world.asked.clear()
    world.member.give({A: 0})
    assert world.asked.wait(DEADLINE_S)
    world.away = False
    assert running.result() == 1


def test_an_offset_behind_the_logs_end_is_reset_and_committed_at_once(world: World) -> None:
    world.given = {A: 500, B: 100}
    seen: list[Batch] = []
    world.consumer(starting_offsets="earliest").run(lambda frame, batch: seen.append(batch), max_batches=1)
    assert world.commits == [{A: 0}, {A: 10, B: 130}]
    assert ranges(*seen) == [["t-0-0-10", "t-1-100-130"]]


def test_an_offset_before_the_logs_start_is_reset_by_the_policy(world: World) -> None:
    world.starts = {A: 5}
    world.consumer(starting_offsets="latest").run(lambda frame, batch: None, max_batches=1)
    assert world.commits == [{A: 10}, {B: 130}]


def test_a_batch_whose_records_were_deleted_meanwhile_goes_on_where_the_log_is(world: World) -> None:
    seen: list[Batch] = []

    def process(frame: object, batch: Batch) -> None:
        seen.append(batch)
        if batch.seq == 0:
            world.starts = {A: 6}
            raise RuntimeError("some data may have been lost")

    world.consumer(starting_offsets="earliest").run(process, max_batches=2)
    assert ranges(*seen) == [["t-0-0-10", "t-1-100-130"], ["t-1-100-130"], ["t-0-6-10"]]


def test_a_position_in_an_open_transaction_is_not_taken_for_lost(world: World) -> None:
    world.given = {A: 12}
    world.high = {A: 15, B: 130}
    world.consumer(config={"isolation.level": "read_committed"}).run(lambda frame, batch: None, idle_timeout_ms=0)
    assert world.commits == []
    assert world.final == {A: 12}
