"""Announce and replay: an announced range is processed exactly as it was announced, even if the consumer fails
meanwhile.
"""

import threading
from typing import Any

import pytest

from tests.spark.fakes import DEADLINE_S, InThread, Job, World
from tests.waiting import wait_until
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.spark.driver.announcing import announced_ranges
from zkcoord.spark.driver.batch_guard import BatchGuard, End, Hold
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch, OffsetRange

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
BOTH = {"t-0": (0, 10), "t-1": (100, 130)}


class Seen(list[tuple[list[str], bool]]):
    """A `process` that keeps each batch's ranges, and whether it was a replay."""

    def __call__(self, frame: object, batch: Batch) -> None:
        self.append(([str(each) for each in batch.ranges], batch.replayed))


def test_ranges_are_announced_before_they_are_processed(world: World) -> None:
    announced: list[Any] = []
    world.consumer().run(lambda frame, batch: announced.extend(world.announced), max_batches=1)
    assert announced == [BOTH]


def test_handed_over_ranges_are_processed_first_alone_and_as_announced(world: World) -> None:
    world.given = {}
    seen = Seen()
    running = InThread(lambda: world.consumer().run(seen, max_batches=2))
    assert world.joined.wait(DEADLINE_S)
    world.ends = {A: 1_000, B: 130, C: 1_000}
    world.member.give({A: 0, B: 100, C: 50}, replay={A: (0, 10), C: (50, 60)})
    assert running.result() == 2
    assert seen == [
        (["t-0-0-10", "t-2-50-60"], True),
        (["t-0-10-1000", "t-1-100-130", "t-2-60-1000"], False),
    ]
    assert world.commits == [{A: 10, C: 60}, {A: 1_000, B: 130, C: 1_000}]
    assert [set(each) for each in world.announced] == [{"t-0", "t-2"}, {"t-0", "t-1", "t-2"}]


def test_replays_are_never_cut_and_come_in_batches_of_bounded_size(world: World) -> None:
    world.given = {}
    seen = Seen()
    running = InThread(lambda: world.consumer(max_offsets_per_batch=20, min_batch_ms=100_000).run(seen, max_batches=3))
    assert world.joined.wait(DEADLINE_S)
    world.ends = {A: 100, B: 130, C: 20}
    world.member.give({A: 0, B: 100, C: 5}, replay={A: (0, 90), B: (100, 115), C: (5, 10)})
    assert running.result() == 3
    assert [batch for batch, _ in seen[:2]] == [["t-0-0-90"], ["t-1-100-115", "t-2-5-10"]]
    assert seen[2][1] is False


def test_after_a_loss_the_rest_of_the_batch_has_the_same_ranges_though_logs_grew(world: World) -> None:
    job = Job(world)
    running = InThread(lambda: world.consumer().run(job, max_batches=1))
    job.await_begun(1)
    world.ends = {A: 500, B: 500}
    world.member.lose(A)
    assert [str(each) for each in job.await_begun(2).ranges] == ["t-1-100-130"]
    job.let_go()
    assert running.result() == 1
    assert world.commits == [{B: 130}]


def test_a_batch_dropped_with_its_lease_is_the_same_ranges_when_the_session_is_back(world: World) -> None:
    job = Job(world)
    running = InThread(lambda: world.consumer().run(job, max_batches=2))
    job.await_begun(1)
    world.ends = {A: 500, B: 500}
    world.member.lose(A, B)
    world.member.give({A: 0, B: 100}, replay={A: (0, 10), B: (100, 130)})
    replayed, fresh = job.await_begun(2), None
    assert (replayed.replayed, [str(each) for each in replayed.ranges]) == (True, ["t-0-0-10", "t-1-100-130"])
    assert replayed.id == job.seen[0].id
    job.let_go(2)
    fresh = job.await_begun(3)
    assert (fresh.replayed, [str(each) for each in fresh.ranges]) == (False, ["t-0-10-500", "t-1-130-500"])
    assert running.result() == 2


def test_an_announcement_of_an_earlier_tenure_counts_only_where_nothing_has_moved(world: World) -> None:
    job = Job(world)
    running = InThread(lambda: world.consumer().run(job, max_batches=1))
    job.await_begun(1)
    world.ends = {A: 500, B: 500}
    world.member.lose(A, B)
    world.member.give({A: 10, B: 60})  # another consumer has processed A further, and an operator has set B back
    again = job.await_begun(2)
    assert (again.replayed, [str(each) for each in again.ranges]) == (False, ["t-0-10-500", "t-1-60-500"])
    job.let_go()
    running.result()


def test_f61_an_announcement_ends_with_its_topic_though_the_new_one_has_an_offset(
    world: World,
) -> None:
    """The new topic begins at the same position. Only the membership knows that it is another topic, and replays
    nothing."""
    job = Job(world)
    running = InThread(lambda: world.consumer(out_of_range="fail").run(job, max_batches=2))
    job.await_begun(1)
    world.ends = {A: 5, B: 500}
    world.member.lose(A, B)
    world.member.give({A: 0, B: 100}, replay={B: (100, 130)})
    again = job.await_begun(2)
    assert (again.replayed, [str(each) for each in again.ranges]) == (True, ["t-1-100-130"])
    job.let_go()
    fresh = job.await_begun(3)
    assert (fresh.replayed, [str(each) for each in fresh.ranges]) == (False, ["t-0-0-5", "t-1-130-500"])
    job.let_go()
    assert running.result() == 2


def test_a_failed_start_takes_its_announced_range_along() -> None:
    guard = BatchGuard(lambda tag: None, Limits(commit_wait_ms=1))
    guard.start(Starting({A: 0}, 1))
    guard.begin("batch", [OffsetRange("t", 0, 0, 10)], guard.view())
    assert guard.claim()
    guard.lose([A])
    guard.replay({A: (0, 10)})
    with pytest.raises(UnavailableError):
        guard.start(Starting({A: 0}, 2))
    guard.finish(End.UNKNOWN, {})
    guard.start(Starting({A: 0}, 2))
    assert guard.view().holds == {A: Hold(0, 2)}


def test_a_commit_that_may_have_happened_decides_whether_the_range_comes_again(world: World) -> None:
    def away() -> None:
        InThread(lambda: world.member.lose(A, B)).result()
        world.ends = {A: 20, B: 140}
        raise UnavailableError("ZooKeeper does not answer")

    world.before_commit = [away]
    seen = Seen()
    running = InThread(lambda: world.consumer().run(seen, max_batches=2))
    assert world.joined.wait(DEADLINE_S)
    wait_until(lambda: world.lost == 1, "the batch is lost")
    world.member.give({A: 10, B: 100}, replay={B: (100, 130)})  # one of two transactions had succeeded
    assert running.result() == 2
    assert seen[1:] == [(["t-1-100-130"], True), (["t-0-10-20", "t-1-130-140"], False)]


def test_a_replay_whose_partition_is_stopped_meanwhile_is_left_out_whole(world: World) -> None:
    world.given = {}
    seen, final = Seen(), []
    running = InThread(lambda: world.consumer().run(seen, max_batches=1))
    assert world.joined.wait(DEADLINE_S)
    world.while_planning = [lambda: final.append(world.member.take(A))]
    world.member.give({A: 0, B: 100}, replay={A: (0, 5), B: (100, 105)})
    running.result()
    assert final == [{A: 0}]
    assert seen == [(["t-1-100-105"], True)]


def test_a_log_that_does_not_answer_holds_up_its_own_replay_only(world: World) -> None:
    seen = Seen()
    world.given, world.ends = {}, {B: 130}
    running = InThread(lambda: world.consumer().run(seen, max_batches=2))
    assert world.joined.wait(DEADLINE_S)
    world.member.give({A: 0, B: 100}, replay={A: (0, 10)})
    wait_until(lambda: world.commits, "a commit")
    world.ends = {A: 10, B: 130}
    assert running.result() == 2
    assert seen == [(["t-1-100-130"], False), (["t-0-0-10"], True)]


# ---- an announcement that does not succeed


def test_without_an_announcement_nothing_is_processed_and_it_is_tried_again(world: World) -> None:
    def away() -> None:
        world.ends = {A: 15, B: 130}
        raise UnavailableError("ZooKeeper does not answer")

    world.before_announcement = [away]
    seen = Seen()
    assert world.consumer().run(seen, max_batches=1) == 1
    assert seen == [(["t-0-0-15", "t-1-100-130"], False)]  # a range that was never begun may be planned again


def test_a_refused_announcement_waits_for_the_command_that_explains_it(world: World) -> None:
    def refuse() -> None:
        refused.set()
        raise FencedError("not held by this consumer any more")

    refused = threading.Event()
    world.before_announcement = [refuse]
    seen = Seen()
    running = InThread(lambda: world.consumer().run(seen, max_batches=1))
    assert refused.wait(DEADLINE_S)
    world.member.lose(A)
    assert running.result() == 1
    assert seen == [(["t-1-100-130"], False)]


def test_a_batch_fenced_while_it_is_announced_is_not_processed(world: World) -> None:
    world.before_announcement = [lambda: InThread(lambda: world.member.lose(A)).result()]
    seen = Seen()
    assert world.consumer().run(seen, max_batches=1) == 1
    assert seen == [(["t-1-100-130"], True)]  # it was announced in spite of the error, so the range does not change
    assert world.announced == [BOTH, {"t-1": (100, 130)}]


def test_a_start_that_comes_while_a_batch_is_announced_is_not_taken_for_the_old_one(world: World) -> None:
    def lose_and_give() -> None:
        InThread(lambda: world.member.lose(A)).result()
        starting.append(InThread(lambda: world.member.give({A: 5})))

    starting: list[InThread] = []
    world.before_announcement = [lose_and_give]
    seen = Seen()
    assert world.consumer().run(seen, max_batches=2) == 2
    starting[0].result()
    assert seen == [(["t-1-100-130"], True), (["t-0-5-10"], False)]


def test_too_many_ranges_for_one_announcement_are_announced_in_turns(world: World) -> None:
    parts = [TopicPartition("t", number) for number in range(5)]
    world.given, world.ends = dict.fromkeys(parts, 0), dict.fromkeys(parts, 10)
    world.announced_max = 2
    seen = Seen()
    assert world.consumer().run(seen, idle_timeout_ms=0) >= 3
    assert max(len(batch) for batch, _ in seen) == 2
    assert sorted(each for batch, _ in seen for each in batch) == [f"t-{number}-0-10" for number in range(5)]


def test_a_single_range_that_cannot_be_announced_ends_the_run(world: World) -> None:
    world.announced_max = 0
    with pytest.raises(UsageError, match="more than a status can hold"):
        world.consumer().run(Seen())
    assert world.events[-1] == "leave"


def test_announcing_can_be_switched_off_and_what_others_announced_is_still_replayed(world: World) -> None:
    world.given = {}
    seen = Seen()
    running = InThread(lambda: world.consumer(announce=False).run(seen, max_batches=2))
    assert world.joined.wait(DEADLINE_S)
    world.member.give({A: 0, B: 100}, replay={A: (0, 5)})
    running.result()
    assert seen == [(["t-0-0-5"], True), (["t-0-5-10", "t-1-100-130"], False)]
    assert world.announced == []


# ---- a range that is not whole in the log


def test_a_replay_whose_first_records_were_deleted_goes_on_where_the_policy_says(world: World) -> None:
    world.given, world.starts = {}, {A: 5}
    seen = Seen()
    running = InThread(lambda: world.consumer(out_of_range="earliest").run(seen, max_batches=1))
    assert world.joined.wait(DEADLINE_S)
    world.member.give({A: 0}, replay={A: (0, 10)})
    running.result()
    assert world.commits == [{A: 5}, {A: 10}]
    assert seen == [(["t-0-5-10"], False)]


@pytest.mark.parametrize("policy", ["earliest", "latest", "fail"])
def test_a_replay_that_ends_beyond_its_log_is_replayed_no_more(
    world: World, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.given = {}
    seen = Seen()
    running = InThread(lambda: world.consumer(out_of_range=policy).run(seen, max_batches=1))
    assert world.joined.wait(DEADLINE_S)
    world.member.give({A: 4, B: 100}, replay={A: (4, 50)})
    if policy == "fail":
        with pytest.raises(UsageError, match=r"t-0: the announced range 4\.\.50 is not whole in the log any more"):
            running.result()
        assert seen == []
    else:
        running.result()
        assert seen == [(["t-0-4-10", "t-1-100-130"], False)]
        assert "What is left of it is read anew" in caplog.text


def test_a_replay_within_an_open_transaction_is_waited_for(world: World) -> None:
    world.given, world.high = {}, {A: 60, B: 130}
    seen = Seen()
    settings = {"isolation.level": "read_committed"}
    running = InThread(lambda: world.consumer(config=settings).run(seen, max_batches=2))
    assert world.joined.wait(DEADLINE_S)
    world.member.give({A: 4, B: 100}, replay={A: (4, 50)})
    wait_until(lambda: world.commits, "a commit")
    world.ends = {A: 55, B: 130}
    running.result()
    assert seen == [(["t-1-100-130"], False), (["t-0-4-50"], True)]


def test_the_first_replay_is_taken_however_large_it_is() -> None:
    holds = {A: Hold(0, 1, announced=1_000), B: Hold(0, 1, announced=3)}
    assert [str(each) for each in announced_ranges(holds, {A: 1_000, B: 3}, 10)] == ["t-0-0-1000"]


def test_a_batch_that_fails_leaves_its_announcement_to_whoever_comes_next(world: World) -> None:
    def fail(frame: object, batch: Batch) -> None:
        raise ValueError("bad record")

    with pytest.raises(ValueError, match="bad record"):
        world.consumer().run(fail)
    assert (world.announced, world.commits, world.final) == ([BOTH], [], {A: 0, B: 100})
