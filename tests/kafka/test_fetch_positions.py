"""The positions of a consumer: a message that was handed out and not finished is never skipped."""

from __future__ import annotations

import random

import pytest

from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UsageError
from zkcoord.kafka.fetch_positions import FetchPositions

A, B = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def holding(**positions: int) -> FetchPositions:
    """Return positions with clicks-0 (`a`) and clicks-1 (`b`), from these offsets."""
    tracked = FetchPositions()
    start(tracked, {{"a": A, "b": B}[name]: offset for name, offset in positions.items()})
    return tracked


def start(tracked: FetchPositions, positions: dict[TopicPartition, int]) -> None:
    """Start a partition, and acknowledge the start."""
    tracked.start(Starting(positions, 1))
    for partition in positions:
        tracked.unbar(partition)


def hand_out(tracked: FetchPositions, partition: TopicPartition, offset: int, allowed: bool = True) -> bool:
    """Hand messages out, as a fetcher does that follows the positions immediately."""
    epoch = tracked.wanted().get(partition, (None, 0))[0]
    return tracked.hand_out(partition, epoch, offset, allowed)


def test_a_message_is_in_work_until_it_is_finished() -> None:
    tracked = holding(a=5, b=0)
    assert hand_out(tracked, A, 5)
    assert (tracked.at_rest([A, B]), tracked.position(A)) == ({B}, 6)
    tracked.finish()
    assert (tracked.at_rest([A]), tracked.stop([A, B])) == ({A}, {A: 6, B: 0})


def test_a_partition_is_given_back_before_its_message_in_work_and_the_user_hears_it_once() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    assert tracked.stop([A]) == {A: 5}
    assert (tracked.take_forfeited(), tracked.take_forfeited()) == ((A,), ())


def test_a_closed_consumer_hands_nothing_out_and_gives_finished_offsets_back() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.finish()
    tracked.closed = True
    assert not hand_out(tracked, A, 6)
    assert tracked.stop([A]) == {A: 6}


def test_a_loss_forfeits_no_committed_offset() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    assert tracked.begin_commit(None) == {A: 6}
    tracked.end_commit(True)
    tracked.lose([A])
    assert (tracked.partitions(), tracked.take_forfeited()) == ((), ())


def test_a_partition_that_came_back_and_was_read_again_is_not_told() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.lose([A])
    start(tracked, {A: 5})
    hand_out(tracked, A, 5)
    tracked.finish()
    assert tracked.take_forfeited() == ()


def test_a_loss_told_by_a_refused_commit_is_not_told_again() -> None:
    tracked = holding(a=5, b=0)
    for partition, offset in ((A, 5), (B, 0)):
        hand_out(tracked, partition, offset)
    assert tracked.begin_commit(None) == {A: 6, B: 1}
    tracked.end_commit(False, {A})
    tracked.lose([A, B])
    assert tracked.take_forfeited() == (B,)  # the user does not know this loss yet


def test_a_loss_during_the_commit_that_told_it_is_not_told_again() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.begin_commit(None)
    tracked.lose([A])
    tracked.end_commit(False, {A})
    assert tracked.take_forfeited() == ()


def test_records_handed_out_after_a_refused_commit_are_told() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.begin_commit(None)
    tracked.end_commit(False, {A})
    hand_out(tracked, A, 6)
    tracked.lose([A])
    assert tracked.take_forfeited() == (A,)


@pytest.mark.parametrize(("offset", "told_later"), [(7, ()), (6, (A,))])
def test_own_offsets_of_a_lost_partition_tell_as_much_as_they_name(offset: int, told_later: tuple[object]) -> None:
    tracked = holding(a=5)
    for number in (5, 6):
        hand_out(tracked, A, number)
    tracked.lose([A])
    with pytest.raises(FencedError, match="clicks-0"):
        tracked.begin_commit({A: offset})
    assert tracked.take_forfeited() == told_later


def test_a_message_of_an_earlier_epoch_is_dropped() -> None:
    tracked = holding(a=5)
    old = tracked.wanted()[A][0]
    tracked.stop([A])
    start(tracked, {A: 2})
    assert not tracked.hand_out(A, old, 5, True)
    assert tracked.position(A) == 2


@pytest.mark.parametrize("change", ["seek", "pause", "take_back"])
def test_each_change_of_the_user_makes_what_was_fetched_before_old(change: str) -> None:
    tracked = holding(a=5)
    old = tracked.wanted()[A][0]
    if change == "seek":
        tracked.seek(A, 5)
    elif change == "pause":
        tracked.pause([A], True)
        tracked.pause([A], False)
    else:
        tracked.take_back()
    assert not tracked.hand_out(A, old, 5, True)
    assert tracked.wanted()[A][1] == 5


def test_nothing_is_fetched_before_the_start_is_acknowledged() -> None:
    tracked = FetchPositions()
    tracked.start(Starting({A: 5}, 1))
    assert (tracked.barred(), tracked.wanted(), tracked.partitions()) == ((A,), {}, (A,))


def test_records_kept_back_by_the_lease_are_fetched_again() -> None:
    tracked = holding(a=5)
    assert not hand_out(tracked, A, 5, allowed=False)
    assert (tracked.barred(), tracked.wanted()) == ((A,), {})
    tracked.unbar(A)
    assert tracked.wanted()[A][1] == 5
    assert hand_out(tracked, A, 5)


def test_a_stopping_partition_hands_out_nothing_and_can_still_be_committed() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.begin_stop([A])
    assert not hand_out(tracked, A, 6)
    assert tracked.begin_commit(None) == {A: 6}
    assert tracked.at_rest([A]) == set()
    tracked.end_commit(True)
    assert tracked.at_rest([A]) == {A}
    assert tracked.stop([A]) == {A: 6}


def test_own_offsets_finish_what_is_before_them() -> None:
    tracked = holding(a=5, b=0)
    for offset in (5, 6):
        hand_out(tracked, A, offset)
    hand_out(tracked, B, 0)
    assert tracked.begin_commit({A: 6}) == {A: 6}
    tracked.end_commit(True)
    assert tracked.at_rest([A, B]) == set()
    assert tracked.stop([A, B]) == {A: 6, B: 0}


def test_own_offsets_are_refused_whole() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    with pytest.raises(FencedError, match="clicks-1"):
        tracked.begin_commit({A: 6, B: 1})
    with pytest.raises(UsageError, match="cannot commit 7 of clicks-0"):
        tracked.begin_commit({A: 7})
    assert tracked.at_rest([A, B]) == {B}
    tracked.finish()
    assert tracked.at_rest([A, B]) == {A, B}


def test_a_commit_under_way_says_nothing_of_a_later_tenure() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.begin_commit(None)
    tracked.lose([A])
    start(tracked, {A: 5})
    tracked.end_commit(True)
    hand_out(tracked, A, 5)
    assert tracked.begin_commit(None) == {A: 6}


def test_a_commit_names_the_last_start_of_each_partition() -> None:
    tracked = FetchPositions()
    tracked.start(Starting({A: 0}, 1))
    tracked.lose([A])
    tracked.start(Starting({A: 5, B: 0}, 4))
    tracked.start(Starting({A: 6}, 7))
    assert tracked.starts_of([A, B]) == {A: 7, B: 4}


def test_a_seek_is_the_position_for_commits_too() -> None:
    tracked = holding(a=5)
    hand_out(tracked, A, 5)
    tracked.seek(A, 2)
    assert tracked.begin_commit(None) == {A: 2}
    with pytest.raises(FencedError):
        tracked.seek(B, 0)


class Story:
    """One partition, a consumer that comes and goes, a fetcher that keeps old messages, a user program that sometimes
    crashes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tracked = FetchPositions()
        self.store = 0  # the offset store
        self.fetched: list[tuple[int, int]] = []  # epoch, offset: on the way from librdkafka to the positions
        self.fetching: tuple[int, int] | None = None  # epoch, next offset
        self.work: list[int] = []  # handed out, not finished
        self.finished: set[int] = set()

    def held(self) -> bool:
        return bool(self.tracked.partitions())

    def step(self) -> None:
        action = self.random.choice(
            [
                "start",
                "fetch",
                "fetch",
                "deliver",
                "deliver",
                "deliver",
                "poll",
                "poll",
                "commit",
                "stop",
                "lose",
                "pause",
            ]
        )
        getattr(self, action)()
        assert set(range(self.store)) <= self.finished, f"passed over before {self.store}: {self.finished}"

    def start(self) -> None:
        if not self.held():
            self.tracked.start(Starting({A: self.store}, 1))

    def fetch(self) -> None:
        for partition in self.tracked.barred():
            self.tracked.unbar(partition)
        wanted = self.tracked.wanted().get(A)
        if wanted is None or self.fetching is None or self.fetching[0] != wanted[0]:
            self.fetching = wanted
        if self.fetching is not None:
            self.fetched.append(self.fetching)
            self.fetching = (self.fetching[0], self.fetching[1] + 1)

    def deliver(self) -> None:
        if self.fetched:
            epoch, offset = self.fetched.pop(0)
            if self.tracked.hand_out(A, epoch, offset, self.random.random() < 0.8):
                self.work.append(offset)

    def poll(self) -> None:
        if self.random.random() < 0.1:
            self.tracked.take_back()
        else:
            self.tracked.finish()
            self.finished.update(self.work)
        self.work.clear()

    def commit(self) -> None:
        self.finished.update(self.work)
        self.work.clear()
        self.store = self.tracked.begin_commit(None).get(A, self.store)
        self.tracked.end_commit(True)

    def stop(self) -> None:
        self.tracked.begin_stop([A])
        self.store = self.tracked.stop([A]).get(A, self.store)

    def lose(self) -> None:
        self.tracked.lose([A])

    def pause(self) -> None:
        self.tracked.pause([A], self.random.random() < 0.5)


def test_no_story_passes_over_a_message() -> None:
    reached = 0
    for seed in range(300):
        story = Story(seed)
        for _ in range(200):
            story.step()
        reached += story.store
    assert reached > 300  # the stories process messages
