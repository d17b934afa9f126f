"""Queries of `format("zkcoord")` whose partitions come and go: second members, replays, restarts, ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.streams import Stream, await_progress
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS
from tests.waiting import wait_until
from zkcoord import Consumer, TopicPartition
from zkcoord.spark import OffsetRange

pytestmark = ON_REAL_SERVERS


@contextmanager
def member(stream: Stream) -> Iterator[dict[TopicPartition, int]]:
    """Start a plain member of the group, which reads nothing; return its partitions and their offsets."""
    held: dict[TopicPartition, int] = {}

    def stop(partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        return {each: held.pop(each) for each in partitions}

    def lost(partitions: tuple[TopicPartition, ...]) -> None:
        for each in partitions:
            held.pop(each, None)

    callbacks = {"on_start": held.update, "on_stop": stop, "on_lost": lost}
    with Consumer(stream.zookeeper, stream.group, [stream.topic.name], **callbacks):  # type: ignore[arg-type]
        yield held


def test_partitions_move_between_two_queries_and_no_record_comes_twice(stream: Stream, tmp_path: Path) -> None:
    """The first one's rows are records, the second one's are ranges: a job moves over to ranges so, too."""
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 20)
    first = stream.start("first", tmp_path / "first")
    stream.wait_for(lambda: len(stream.records) == 40, first)
    stream.of_ranges = True
    second = stream.start("second", tmp_path / "second")
    for count in range(1, 200):
        stream.topic.fill(0, 1)
        stream.topic.fill(1, 1)
        stream.wait_for(lambda count=count: len(stream.records) == 40 + 2 * count, first, second)
        if stream.by("second"):
            break
    assert len(stream.by("second")) == 1
    all_read = dict.fromkeys((0, 1), 20 + count)
    wait_until(lambda: stream.committed() == all_read, "nothing is left to come again when the first one goes")
    first.stop()
    stream.topic.fill(0, 5)
    stream.topic.fill(1, 5)
    stream.wait_for(lambda: len(stream.records) == 50 + 2 * count, second)
    second.stop()
    assert set(stream.records.values()) == {1}


def test_a_member_that_joins_is_given_a_partition_when_the_batch_is_complete(stream: Stream, tmp_path: Path) -> None:
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 10)
    query = stream.start("a", tmp_path, {"processingTime": "5 seconds"})
    await_progress(query, 0)
    with member(stream) as held:
        wait_until(lambda: len(held) == 1, "a partition")  # the next trigger shows that the batch is complete
        ((given, position),) = held.items()
        assert position == {0: 20, 1: 10}[given.partition]
        stream.topic.fill(given.partition, 5)
        stream.topic.fill(1 - given.partition, 5)
        stream.wait_for(lambda: len(stream.records) == 35, query)
    stream.wait_for(lambda: len(stream.records) == 40, query)  # it left: the query goes on where it was
    assert set(stream.records.values()) == {1}


def test_a_batch_beyond_the_rebalance_timeout_is_not_committed_and_is_read_elsewhere(
    either: Stream, tmp_path: Path
) -> None:
    either.topic.fill(0, 20)
    either.topic.fill(1, 10)
    query = either.start("a", tmp_path, {"processingTime": "1 hour"}, rebalanceTimeoutMs="1000")
    await_progress(query, 0)
    with member(either) as held:
        wait_until(lambda: len(held) == 1, "a partition")
        assert set(held.values()) == {0}


def test_a_broken_batch_is_read_again_by_its_query_while_another_member_has_its_partitions(
    either: Stream, tmp_path: Path
) -> None:
    def fail(number: int) -> None:
        raise RuntimeError("the sink is away")

    either.topic.fill(0, 7)
    either.topic.fill(1, 4)
    ranges = (OffsetRange(either.topic.name, 0, 0, 7, 1), OffsetRange(either.topic.name, 1, 0, 4, 1))
    either.before = fail
    first = either.start("first", tmp_path / "first")
    with pytest.raises(Exception, match="the sink is away"):
        first.awaitTermination(int(DEADLINE_S))
    either.before = lambda number: None
    either.topic.fill(0, 5)
    second = either.start("second", tmp_path / "second")
    either.wait_for(lambda: len(either.records) == 16, second)
    assert either.ranges[0][1].ranges == ranges, "what was announced comes first, as it was"
    again = either.start("again", tmp_path / "first")
    either.wait_for(lambda: "again" in {name for name, _, _ in either.batches}, again)
    broken = [(0, offset) for offset in range(7)] + [(1, offset) for offset in range(4)]
    assert either.batches[-1] == ("again", 0, broken), "whole, as it was: a sink may have part of it"
    assert either.ranges[-1][1].ranges == ranges
    for count in range(1, 200):
        either.topic.fill(0, 1)
        either.topic.fill(1, 1)
        either.wait_for(lambda count=count: len(either.records) == 16 + 2 * count, again, second)
        if any(number > 0 for name, number, _ in either.batches if name == "again"):
            break
    first_time = {row: times for row, times in either.records.items() if row not in broken}
    assert set(first_time.values()) == {1}, "what they share from now on comes once"
    assert {either.records[row] for row in broken} == {2}


def test_a_query_leaves_the_group_when_it_is_stopped(stream: Stream, tmp_path: Path) -> None:
    from kazoo.client import KazooClient

    stream.topic.fill(0, 3)
    query = stream.start("a", tmp_path, sessionTimeoutMs="60000")
    stream.wait_for(lambda: len(stream.records) == 3, query)
    wait_until(lambda: stream.committed() == {0: 3, 1: 0}, "a commit")
    client = KazooClient(stream.zookeeper)
    client.start(DEADLINE_S)
    try:
        ids = f"/consumers/groups/{stream.group}/ids"
        assert len(client.get_children(ids)) == 1
        query.stop()
        wait_until(lambda: client.get_children(ids) == [], "the end of the session, before its 60 s")
        assert client.get(f"/consumers/groups/{stream.group}/offsets/{stream.topic.name}/0")[0] == b"3"
    finally:
        client.stop()
        client.close()


def test_records_deleted_before_they_are_read_fail_the_query_or_are_skipped(stream: Stream, tmp_path: Path) -> None:
    stream.topic.fill(0, 30)
    query = stream.start("a", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 30, query)
    wait_until(lambda: stream.committed().get(0) == 30, "the batch is complete: it is not read again")
    query.stop()
    stream.topic.fill(0, 30)
    stream.topic.delete_before(0, 50)
    again = stream.start("again", tmp_path)
    with pytest.raises(Exception, match="records were deleted before this group read them"):
        again.awaitTermination(int(DEADLINE_S))
    on = stream.start("on", tmp_path, failOnDataLoss="false")
    stream.wait_for(lambda: len(stream.records) == 40, on)


def test_a_broken_batch_with_deleted_records_fails_the_query_or_reads_the_rest(either: Stream, tmp_path: Path) -> None:
    def fail(number: int) -> None:
        raise RuntimeError("the sink is away")

    either.topic.fill(0, 30)
    either.before = fail
    with pytest.raises(Exception, match="the sink is away"):
        either.start("a", tmp_path).awaitTermination(int(DEADLINE_S))
    either.before = lambda number: None
    either.topic.delete_before(0, 20)
    with pytest.raises(Exception, match=r"cannot be read again as it was.*failOnDataLoss=false"):
        either.start("again", tmp_path).awaitTermination(int(DEADLINE_S))
    on = either.start("on", tmp_path, failOnDataLoss="false")
    either.wait_for(lambda: len(either.records) == 10, on)
