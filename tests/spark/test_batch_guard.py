"""What two threads may do to each other across the holdings."""

from collections.abc import Callable

import pytest

from tests.spark.fakes import InThread
from tests.waiting import wait_until
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import InvariantError, UnavailableError
from zkcoord.spark import batch_guard
from zkcoord.spark.batch_guard import BatchGuard, End, Hold
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
def holdings(cancelled: list[str]) -> BatchGuard:
    made = BatchGuard(cancelled.append, Limits(cancel_wait_ms=1, commit_wait_ms=1))  # one thread: nobody comes back
    made.start(Starting({A: 0, B: 5}, 1))
    return made


def test_a_start_is_refused_while_a_commit_decided_before_it_is_under_way(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.claim()
    holdings.lose([A])
    with pytest.raises(UnavailableError):
        holdings.start(Starting({A: 3}, 2))
    holdings.finish(End.COMMITTED, {A: 10, B: 9})
    holdings.start(Starting({A: 3}, 2))
    assert holdings.view().holds == {A: Hold(3, 2), B: Hold(9, 1)}


def test_a_start_of_something_else_does_not_wait_for_a_commit(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES[:1], holdings.view())
    assert holdings.claim()
    holdings.start(Starting({B: 7}, 2))
    assert holdings.view().holds[B] == Hold(7, 2)


def test_a_fenced_batch_cannot_be_claimed_and_is_cancelled_once(holdings: BatchGuard, cancelled: list[str]) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    holdings.lose([A])
    holdings.lose([B])
    assert (holdings.fenced, holdings.claim(), cancelled) == (True, False, ["batch"])


def test_a_batch_that_is_being_committed_is_neither_cancelled_nor_waited_for(
    holdings: BatchGuard, cancelled: list[str]
) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.claim()
    holdings.lose([A, B])
    holdings.commit_failed()
    assert (holdings.claim(), cancelled) == (False, [])


def test_what_a_late_batch_still_reads_has_no_final_offset(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES[:1], holdings.view())
    told: list[object] = []
    assert holdings.stop([A, B], 0, lambda partition: True, lambda *early: told.append(early)) == {}
    assert told == [({B}, {B: 5})]
    assert holdings.view().holds == {}


def test_a_stop_of_what_is_not_held_is_done(holdings: BatchGuard) -> None:
    assert holdings.stop([TopicPartition("u", 0)], 0, lambda partition: True, nothing_early) == {}


def test_an_offset_whose_commit_was_refused_is_not_called_final(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    holdings.claim()
    holdings.finish(End.REFUSED, {A: 10, B: 9})
    assert holdings.stop([A, B], 0, lambda partition: True, nothing_early) == {}


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
def test_every_change_ends_a_wait_for_a_later_one(holdings: BatchGuard, change: Callable[[BatchGuard], object]) -> None:
    holdings.begin("batch", RANGES[:1], holdings.view())
    assert holdings.claim()
    seen = holdings.view()
    assert not holdings.await_change(seen.change, 1)
    change(holdings)
    assert holdings.await_change(seen.change, 0)


def test_a_consumer_that_is_asked_to_leave_says_so(holdings: BatchGuard) -> None:
    assert not holdings.view().leaving
    holdings.leave()
    assert holdings.view().leaving


# what a stop waits for


def test_a_stop_waits_for_a_batch_that_reads_what_it_names_also_when_it_names_what_is_not_held(
    holdings: BatchGuard, cancelled: list[str]
) -> None:
    """The lease says nothing of a partition that was not started here."""
    holdings.begin("batch", RANGES[:1], holdings.view())

    def leased(partition: TopicPartition) -> bool:
        if holdings.view().holds and A not in moved:
            moved.add(A)
            holdings.finish(End.COMMITTED, {A: 10})
        return partition == A

    moved: set[TopicPartition] = set()
    assert holdings.stop([A, TopicPartition("u", 0)], 60_000, leased, nothing_early) == {A: 10}
    assert cancelled == []


def test_a_stop_breaks_the_batch_off_when_one_of_its_partitions_may_not_be_read_any_more(
    holdings: BatchGuard, cancelled: list[str]
) -> None:
    asked: list[TopicPartition] = []

    def leased(partition: TopicPartition) -> bool:
        asked.append(partition)
        assert len(asked) < 5, "it goes on waiting"
        return partition == A

    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.stop([A, B], 60_000, leased, nothing_early) == {}
    assert cancelled == ["batch"]
    assert holdings.finish(End.UNTRIED, {}) == "they are not this consumer's any more while a stop waited for it"


def test_a_stop_looks_at_the_lease_while_it_waits_and_cancels_nothing_before(
    holdings: BatchGuard, cancelled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_guard, "LEASE_CHECK_MS", 1)
    asked: list[list[str]] = []  # what was cancelled then

    def leased(partition: TopicPartition) -> bool:
        asked.append(list(cancelled))
        return len(asked) < 3

    holdings.begin("batch", RANGES[:1], holdings.view())
    assert holdings.stop([A], 2_000, leased, nothing_early) == {}
    assert holdings.finish(End.UNTRIED, {}) == "they are not this consumer's any more while a stop waited for it"
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


def test_a_partition_that_is_started_after_a_stop_that_failed_is_planned(holdings: BatchGuard) -> None:
    def leased(partition: TopicPartition) -> bool:
        raise UnavailableError("the membership cannot tell")

    holdings.begin("batch", RANGES, holdings.view())
    with pytest.raises(UnavailableError):
        holdings.stop([A], 0, leased, nothing_early)
    assert holdings.view().holds.keys() == {B}
    holdings.start(Starting({A: 3}, 2))
    assert holdings.view().holds.keys() == {A, B}


def test_two_batches_at_once_are_a_bug(holdings: BatchGuard) -> None:
    holdings.begin("one", RANGES[:1], holdings.view())
    with pytest.raises(InvariantError):
        holdings.begin("two", RANGES[1:], holdings.view())


# what `begin` leaves out, and when `claim` says no


def test_a_consumer_that_leaves_begins_nothing(holdings: BatchGuard) -> None:
    seen = holdings.view()
    holdings.leave()
    assert holdings.begin("batch", RANGES, seen) == ()


def test_what_is_being_stopped_is_left_out_of_a_batch_that_was_planned_before(holdings: BatchGuard) -> None:
    """The batch that the stop waits for is over, and the stop has not noticed yet."""
    seen = holdings.view()
    holdings.begin("batch", RANGES[:1], seen)
    begun: list[object] = []

    def leased(partition: TopicPartition) -> bool:
        if not begun:
            holdings.finish(End.UNTRIED, {})
            begun.append(holdings.begin("the next one", RANGES, seen))
        return True

    assert holdings.stop([A], 1_000, leased, nothing_early) == {A: 0}
    assert begun == [RANGES[1:]]


@pytest.mark.parametrize("position", [0, 3])
def test_a_planned_batch_leaves_out_a_partition_that_was_lost_and_started_again(
    holdings: BatchGuard, position: int
) -> None:
    seen = holdings.view()
    holdings.lose([A])
    holdings.start(Starting({A: position}, 2))
    assert holdings.begin("batch", RANGES, seen) == RANGES[1:]


def test_what_moved_is_left_out_of_a_batch_that_was_planned_before(holdings: BatchGuard) -> None:
    seen = holdings.view()
    holdings.begin("reset", [OffsetRange("t", 0, 7, 7)], seen)
    holdings.finish(End.COMMITTED, {A: 7})
    assert holdings.begin("batch", RANGES, seen) == RANGES[1:]


def test_a_batch_of_which_nothing_is_left_does_not_run(holdings: BatchGuard) -> None:
    seen = holdings.view()
    holdings.lose([A])
    assert holdings.begin("batch", RANGES[:1], seen) == ()
    assert holdings.begin("the next one", RANGES[1:], seen) == RANGES[1:]


def test_a_batch_that_was_fenced_is_not_claimed_though_all_of_it_is_still_held(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    holdings.leave(cancel="the user breaks it off")
    assert not holdings.claim()


def test_a_batch_with_a_restarted_partition_cannot_be_claimed(
    holdings: BatchGuard,
) -> None:
    """A loss drops the partition first and fences then; a start tells the present offset without a loss."""
    holdings.begin("batch", RANGES, holdings.view())
    holdings.start(Starting({A: 3}, 2))
    assert not holdings.fenced
    assert not holdings.claim()


def test_a_wait_for_one_batch_does_not_fence_the_next(holdings: BatchGuard, cancelled: list[str]) -> None:
    holdings.begin("the next one", RANGES, holdings.view())
    assert not holdings.fence("the one before", "late")
    assert (holdings.claim(), cancelled) == (True, [])


def test_what_ended_is_no_news_of_a_partition_that_was_started_anew(holdings: BatchGuard) -> None:
    """Neither its announcement nor its commit, and a stop of it does not wait for that batch."""
    holdings.begin("batch", RANGES, holdings.view())
    holdings.start(Starting({A: 3}, 2))
    holdings.announced()
    assert holdings.view().holds[A] == Hold(3, 2)
    assert holdings.stop([A], 0, lambda partition: True, nothing_early) == {A: 3}
    assert not holdings.fenced
    holdings.start(Starting({A: 3}, 3))
    holdings.finish(End.COMMITTED, {A: 10, B: 9})
    assert holdings.view().holds == {A: Hold(3, 3), B: Hold(9, 1)}


def test_a_batch_that_was_fenced_while_it_was_announced_may_not_read(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.claim()
    holdings.lose([A])
    assert not holdings.announced()
    assert holdings.view().holds == {B: Hold(5, 1, announced=9)}


def test_a_range_that_was_handed_over_counts_at_its_own_position_only(holdings: BatchGuard) -> None:
    holdings.replay({A: (0, 10), B: (5, 9)})
    holdings.start(Starting({A: 4, B: 5}, 2))  # a checkpoint tells that a part of A is done
    assert holdings.view().holds == {A: Hold(4, 2), B: Hold(5, 2, announced=9)}


def test_a_batch_whose_announcement_is_over_reads_and_is_cancelled_when_it_is_lost(
    holdings: BatchGuard, cancelled: list[str]
) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.claim()
    assert holdings.announced()
    holdings.lose([A])
    assert cancelled == ["batch"]


def test_a_start_does_not_wait_for_a_commit_that_failed(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.claim()
    holdings.commit_failed()
    holdings.start(Starting({A: 3}, 2))
    assert holdings.view().holds[A] == Hold(3, 2)


def test_an_announced_range_that_cannot_be_read_any_more_is_forgotten(holdings: BatchGuard) -> None:
    holdings.begin("batch", RANGES, holdings.view())
    assert holdings.claim()
    assert holdings.announced()
    holdings.finish(End.UNTRIED, {})
    holdings.forget([A, TopicPartition("u", 0)])
    assert holdings.view().holds == {A: Hold(0, 1), B: Hold(5, 1, announced=9)}


def test_a_batch_is_told_by_its_tag_and_the_first_reason_to_break_it_off_counts(holdings: BatchGuard) -> None:
    holdings.begin("one", RANGES[:1], holdings.view())
    assert holdings.fence("one", "first")
    assert holdings.fence("one", "second")
    assert not holdings.await_end("one", 1)
    assert holdings.finish(End.UNTRIED, {}) == "first"
    holdings.begin("two", RANGES[1:], holdings.view())
    assert holdings.await_end("one", 1)
