"""How the guard orders the loop's thread and the membership's thread."""

from collections.abc import Callable

import pytest

from tests.spark.fakes import InThread
from tests.waiting import wait_until
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import InvariantError, UnavailableError
from zkcoord.spark.driver.batch_guard import BatchGuard, End, Hold
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import OffsetRange

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = (OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 9))


def nothing_early(*early: object) -> None:
    raise AssertionError(f"there is nothing to wait for, so all is answered at once: {early}")


@pytest.fixture
def cancelled() -> list[str]:
    return []


@pytest.fixture
def guard(cancelled: list[str]) -> BatchGuard:
    limits = Limits(cancel_wait_ms=1, commit_wait_ms=1, lease_check_ms=1)  # one thread: waits time out
    made = BatchGuard(cancelled.append, limits)
    made.start(Starting({A: 0, B: 5}, 1))
    return made


def test_a_start_is_refused_while_a_commit_decided_before_it_is_under_way(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES, guard.view())
    assert guard.claim()
    guard.lose([A])
    with pytest.raises(UnavailableError):
        guard.start(Starting({A: 3}, 2))
    guard.finish(End.COMMITTED, {A: 10, B: 9})
    guard.start(Starting({A: 3}, 2))
    assert guard.view().holds == {A: Hold(3, 2), B: Hold(9, 1)}


def test_a_start_of_something_else_does_not_wait_for_a_commit(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES[:1], guard.view())
    assert guard.claim()
    guard.start(Starting({B: 7}, 2))
    assert guard.view().holds[B] == Hold(7, 2)


def test_a_fenced_batch_cannot_be_claimed_and_is_cancelled_once(guard: BatchGuard, cancelled: list[str]) -> None:
    guard.begin("batch", RANGES, guard.view())
    guard.lose([A])
    guard.lose([B])
    assert (guard.fenced, guard.claim(), cancelled) == (True, False, ["batch"])


def test_a_batch_that_is_being_committed_is_neither_cancelled_nor_waited_for(
    guard: BatchGuard, cancelled: list[str]
) -> None:
    guard.begin("batch", RANGES, guard.view())
    assert guard.claim()
    guard.lose([A, B])
    guard.commit_failed()
    assert (guard.claim(), cancelled) == (False, [])


def test_a_late_batchs_partition_has_no_final_offset(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES[:1], guard.view())
    told: list[object] = []
    assert guard.stop([A, B], 0, lambda partition: True, lambda *early: told.append(early)) == {}
    assert told == [({B}, {B: 5})]
    assert guard.view().holds == {}


def test_a_stop_of_what_is_not_held_is_done(guard: BatchGuard) -> None:
    assert guard.stop([TopicPartition("u", 0)], 0, lambda partition: True, nothing_early) == {}


def test_an_offset_whose_commit_was_refused_is_not_called_final(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES, guard.view())
    guard.claim()
    guard.finish(End.REFUSED, {A: 10, B: 9})
    assert guard.stop([A, B], 0, lambda partition: True, nothing_early) == {}


CHANGES: dict[str, Callable[[BatchGuard], object]] = {
    "start": lambda guard: guard.start(Starting({B: 7}, 2)),
    "stop": lambda guard: guard.stop([B], 0, lambda partition: True, nothing_early),
    "loss": lambda guard: guard.lose([B]),
    "announcement": lambda guard: guard.announced(),
    "commit that failed": lambda guard: guard.commit_failed(),
    "end of the batch": lambda guard: guard.finish(End.COMMITTED, {A: 10}),
    "fence": lambda guard: guard.fence("batch", "why"),
    "leave": lambda guard: guard.leave(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_ends_a_wait_for_a_later_one(guard: BatchGuard, change: Callable[[BatchGuard], object]) -> None:
    guard.begin("batch", RANGES[:1], guard.view())
    assert guard.claim()
    seen = guard.view()
    assert not guard.await_change(seen.change, 1)
    change(guard)
    assert guard.await_change(seen.change, 0)


def test_a_consumer_that_is_asked_to_leave_says_so(guard: BatchGuard) -> None:
    assert not guard.view().leaving
    guard.leave()
    assert guard.view().leaving


# the batches that a stop waits for


def test_a_stop_waits_for_a_batch_that_reads_what_it_names_also_when_it_names_what_is_not_held(
    guard: BatchGuard, cancelled: list[str]
) -> None:
    """A lease does not cover a partition that was not started here."""
    guard.begin("batch", RANGES[:1], guard.view())

    def leased(partition: TopicPartition) -> bool:
        if guard.view().holds and A not in moved:
            moved.add(A)
            guard.finish(End.COMMITTED, {A: 10})
        return partition == A

    moved: set[TopicPartition] = set()
    assert guard.stop([A, TopicPartition("u", 0)], 60_000, leased, nothing_early) == {A: 10}
    assert cancelled == []


def test_a_stop_breaks_the_batch_off_when_one_of_its_partitions_may_not_be_read_any_more(
    guard: BatchGuard, cancelled: list[str]
) -> None:
    asked: list[TopicPartition] = []

    def leased(partition: TopicPartition) -> bool:
        asked.append(partition)
        assert len(asked) < 5, "it goes on waiting"
        return partition == A

    guard.begin("batch", RANGES, guard.view())
    assert guard.stop([A, B], 60_000, leased, nothing_early) == {}
    assert cancelled == ["batch"]
    assert guard.finish(End.UNTRIED, {}) == "they are not this consumer's any more while a stop waited for it"


def test_a_stop_looks_at_the_lease_while_it_waits_and_cancels_nothing_before(
    guard: BatchGuard, cancelled: list[str]
) -> None:
    asked: list[list[str]] = []  # what was cancelled then

    def leased(partition: TopicPartition) -> bool:
        asked.append(list(cancelled))
        return len(asked) < 3

    guard.begin("batch", RANGES[:1], guard.view())
    assert guard.stop([A], 2_000, leased, nothing_early) == {}
    assert guard.finish(End.UNTRIED, {}) == "they are not this consumer's any more while a stop waited for it"
    assert (asked, cancelled) == ([[], [], []], ["batch"])


def test_a_stop_that_cancels_does_so_at_once_and_returns_when_the_batch_is_back() -> None:
    def cancel(tag: str) -> None:
        told.append(tag)
        told.append(guard.finish(End.UNTRIED, {}))

    told: list[str] = []
    guard = BatchGuard(cancel, Limits(cancel_wait_ms=1, commit_wait_ms=1))
    guard.start(Starting({A: 0}, 1))
    guard.begin("batch", RANGES[:1], guard.view())
    assert guard.stop([A], 60_000, lambda partition: True, nothing_early, cancel=True) == {A: 0}
    assert told == ["batch", "a stop cancels it (at_rebalance)"]


def test_a_loss_returns_when_the_batch_that_reads_it_is_back() -> None:
    guard, told = BatchGuard(lambda tag: None, Limits(cancel_wait_ms=60_000, commit_wait_ms=1)), []

    def lose() -> None:
        guard.lose([A])
        told.append("lost")

    guard.start(Starting({A: 0}, 1))
    guard.begin("batch", RANGES[:1], guard.view())
    losing = InThread(lose)
    wait_until(lambda: guard.fenced, "the batch is fenced")
    told.append("back")
    guard.finish(End.UNTRIED, {})
    losing.result()
    assert told == ["back", "lost"]


def test_a_partition_that_is_started_after_a_stop_that_failed_is_planned(guard: BatchGuard) -> None:
    def leased(partition: TopicPartition) -> bool:
        raise UnavailableError("the membership cannot tell")

    guard.begin("batch", RANGES, guard.view())
    with pytest.raises(UnavailableError):
        guard.stop([A], 0, leased, nothing_early)
    assert guard.view().holds.keys() == {B}
    guard.start(Starting({A: 3}, 2))
    assert guard.view().holds.keys() == {A, B}


def test_two_batches_at_once_are_a_bug(guard: BatchGuard) -> None:
    guard.begin("one", RANGES[:1], guard.view())
    with pytest.raises(InvariantError):
        guard.begin("two", RANGES[1:], guard.view())


# which ranges `begin` leaves out, and when `claim` refuses


def test_a_consumer_that_leaves_begins_nothing(guard: BatchGuard) -> None:
    seen = guard.view()
    guard.leave()
    assert guard.begin("batch", RANGES, seen) == ()


def test_an_earlier_planned_batch_leaves_out_stopping_partitions(guard: BatchGuard) -> None:
    """The batch that the stop waits for is over, but the stop has not noticed that yet."""
    seen = guard.view()
    guard.begin("batch", RANGES[:1], seen)
    begun: list[object] = []

    def leased(partition: TopicPartition) -> bool:
        if not begun:
            guard.finish(End.UNTRIED, {})
            begun.append(guard.begin("the next one", RANGES, seen))
        return True

    assert guard.stop([A], 1_000, leased, nothing_early) == {A: 0}
    assert begun == [RANGES[1:]]


@pytest.mark.parametrize("position", [0, 3])
def test_a_planned_batch_leaves_out_a_partition_that_was_lost_and_started_again(
    guard: BatchGuard, position: int
) -> None:
    seen = guard.view()
    guard.lose([A])
    guard.start(Starting({A: position}, 2))
    assert guard.begin("batch", RANGES, seen) == RANGES[1:]


def test_an_earlier_planned_batch_leaves_out_moved_partitions(guard: BatchGuard) -> None:
    seen = guard.view()
    guard.begin("reset", [OffsetRange("t", 0, 7, 7)], seen)
    guard.finish(End.COMMITTED, {A: 7})
    assert guard.begin("batch", RANGES, seen) == RANGES[1:]


def test_a_batch_of_which_nothing_is_left_does_not_run(guard: BatchGuard) -> None:
    seen = guard.view()
    guard.lose([A])
    assert guard.begin("batch", RANGES[:1], seen) == ()
    assert guard.begin("the next one", RANGES[1:], seen) == RANGES[1:]


def test_a_batch_that_was_fenced_is_not_claimed_though_all_of_it_is_still_held(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES, guard.view())
    guard.leave(cancel="the user breaks it off")
    assert not guard.claim()


def test_a_batch_with_a_restarted_partition_cannot_be_claimed(
    guard: BatchGuard,
) -> None:
    """A loss drops the partition first, and then fences. A start can also give a new offset without a loss before
    it."""
    guard.begin("batch", RANGES, guard.view())
    guard.start(Starting({A: 3}, 2))
    assert not guard.fenced
    assert not guard.claim()


def test_a_wait_for_one_batch_does_not_fence_the_next(guard: BatchGuard, cancelled: list[str]) -> None:
    guard.begin("the next one", RANGES, guard.view())
    assert not guard.fence("the one before", "late")
    assert (guard.claim(), cancelled) == (True, [])


def test_an_ended_batch_tells_nothing_of_a_restarted_partition(guard: BatchGuard) -> None:
    """The ended batch's announcement and commit do not count for the partition, and a stop of the partition does not
    wait for that batch."""
    guard.begin("batch", RANGES, guard.view())
    guard.start(Starting({A: 3}, 2))
    guard.announced()
    assert guard.view().holds[A] == Hold(3, 2)
    assert guard.stop([A], 0, lambda partition: True, nothing_early) == {A: 3}
    assert not guard.fenced
    guard.start(Starting({A: 3}, 3))
    guard.finish(End.COMMITTED, {A: 10, B: 9})
    assert guard.view().holds == {A: Hold(3, 3), B: Hold(9, 1)}


def test_a_batch_that_was_fenced_while_it_was_announced_may_not_read(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES, guard.view())
    assert guard.claim()
    guard.lose([A])
    assert not guard.announced()
    assert guard.view().holds == {B: Hold(5, 1, announced=9)}


def test_a_range_that_was_handed_over_counts_at_its_own_position_only(guard: BatchGuard) -> None:
    guard.replay({A: (0, 10), B: (5, 9)})
    guard.start(Starting({A: 4, B: 5}, 2))  # a checkpoint shows that a part of A is processed
    assert guard.view().holds == {A: Hold(4, 2), B: Hold(5, 2, announced=9)}


def test_a_batch_whose_announcement_is_over_reads_and_is_cancelled_when_it_is_lost(
    guard: BatchGuard, cancelled: list[str]
) -> None:
    guard.begin("batch", RANGES, guard.view())
    assert guard.claim()
    assert guard.announced()
    guard.lose([A])
    assert cancelled == ["batch"]


def test_a_start_does_not_wait_for_a_commit_that_failed(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES, guard.view())
    assert guard.claim()
    guard.commit_failed()
    guard.start(Starting({A: 3}, 2))
    assert guard.view().holds[A] == Hold(3, 2)


def test_an_announced_range_that_cannot_be_read_any_more_is_forgotten(guard: BatchGuard) -> None:
    guard.begin("batch", RANGES, guard.view())
    assert guard.claim()
    assert guard.announced()
    guard.finish(End.UNTRIED, {})
    guard.forget([A, TopicPartition("u", 0)])
    assert guard.view().holds == {A: Hold(0, 1), B: Hold(5, 1, announced=9)}


def test_a_batch_is_told_by_its_tag_and_the_first_reason_to_break_it_off_counts(guard: BatchGuard) -> None:
    guard.begin("one", RANGES[:1], guard.view())
    assert guard.fence("one", "first")
    assert guard.fence("one", "second")
    assert not guard.await_end("one", 1)
    assert guard.finish(End.UNTRIED, {}) == "first"
    guard.begin("two", RANGES[1:], guard.view())
    assert guard.await_end("one", 1)
