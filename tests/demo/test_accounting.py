"""The demo's verdict: what is lost, what is there twice, what was unowned for how long."""

from __future__ import annotations

from typing import Any

import pytest

from zkcoord.demo.accounting import Output, Range, Records, Unowned, count_records, unowned_times


def output(partition: int, start: int, end: int) -> Output:
    """A file that holds exactly its range."""
    return Output(Range(partition, start, end), range(start, end))


def counted(**fields: int) -> Records:
    """A count; what is not named is 0."""
    return Records(**{**dict.fromkeys(Records.__slots__, 0), **fields})


def test_every_record_once_is_fine() -> None:
    outputs = [output(0, 0, 4), output(1, 0, 3), output(0, 4, 5)]
    records = count_records({0: 5, 1: 3}, outputs)
    assert records == counted(produced=8, processed=8)
    assert records.fine


def test_records_in_no_file_are_lost() -> None:
    records = count_records({0: 10, 1: 2}, [output(0, 0, 4), output(0, 6, 10)])
    assert records == counted(produced=12, processed=8, lost=4)
    assert not records.fine


def test_a_file_that_lacks_rows_of_its_range_has_lost_them() -> None:
    records = count_records({0: 4}, [Output(Range(0, 0, 4), [0, 1, 3])])
    assert records == counted(produced=4, processed=3, lost=1)


def test_records_that_are_there_twice_are_not_fine_whatever_was_interrupted() -> None:
    outputs = [output(0, 0, 4), output(0, 4, 8), output(0, 4, 10)]
    records = count_records({0: 10}, outputs, [Range(0, 4, 8)])
    assert records == counted(produced=10, processed=14, duplicated=4, interrupted=4)
    assert not records.fine


def test_a_record_three_times_counts_twice() -> None:
    assert count_records({0: 2}, [output(0, 0, 2)] * 3) == counted(produced=2, processed=6, duplicated=4)


@pytest.mark.parametrize(
    "strange",
    [output(0, 4, 5), output(7, 0, 1), Output(Range(0, 0, 2), [3]), Output(Range(0, 0, 4), [-1])],
    ids=["beyond what was produced", "no such partition", "in a file of another range", "without a number"],
)
def test_a_row_that_does_not_belong_where_it_is_is_not_fine(strange: Output) -> None:
    records = count_records({0: 4}, [output(0, 0, 4), strange])
    assert (records.lost, records.foreign, records.fine) == (0, 1, False)


def test_an_empty_partition_has_lost_nothing() -> None:
    assert count_records({0: 0, 1: 1}, [output(1, 0, 1)]) == counted(produced=1, processed=1)


def started(at_ms: int, consumer: str, *partitions: str) -> dict[str, Any]:
    """A consumer began to read."""
    return {
        "event": "fetch_started",
        "mono_ms": at_ms,
        "consumer": consumer,
        "offsets": dict.fromkeys(partitions, 0),
    }


def stopped(at_ms: int, consumer: str, *partitions: str) -> dict[str, Any]:
    """A consumer was told to stop, and did."""
    return {**started(at_ms, consumer, *partitions), "event": "fetch_stopped"}


def lost(at_ms: int, consumer: str, *partitions: str, event: str = "fetch_lost") -> dict[str, Any]:
    """A consumer's lease, or session, ended."""
    return {"event": event, "mono_ms": at_ms, "consumer": consumer, "partitions": list(partitions)}


def test_a_partition_is_unowned_between_a_stop_and_the_next_start() -> None:
    a = [started(10, "a", "t-0", "t-1"), stopped(100, "a", "t-1"), {"event": "batch_done", "mono_ms": 101}]
    b = [started(130, "b", "t-1"), stopped(500, "b", "t-1")]
    assert unowned_times([a, b], {}) == [Unowned("t-1", 100, 130)]


def test_a_dead_consumers_partitions_are_unowned_from_its_sessions_end() -> None:
    a = [started(10, "a", "t-0", "t-1"), stopped(20, "a", "t-1")]
    b = [started(25, "b", "t-1"), started(6_030, "b", "t-0")]
    assert unowned_times([a, b], {"a": 6_000}) == [Unowned("t-1", 20, 25), Unowned("t-0", 6_000, 6_030)]


@pytest.mark.parametrize("event", ["fetch_lost", "session_lost"])
def test_a_consumer_that_lost_its_lease_and_came_back_left_its_partitions_unowned_meanwhile(event: str) -> None:
    a = [started(10, "a", "t-0"), lost(100, "a", "t-0", event=event), started(300, "a", "t-0")]
    assert unowned_times([a], {}) == [Unowned("t-0", 100, 300)]


def test_a_start_that_is_logged_before_the_stop_before_it_leaves_nothing_unowned() -> None:
    a = [started(10, "a", "t-0"), stopped(100, "a", "t-0")]
    b = [started(99, "b", "t-0")]
    assert unowned_times([a, b], {}) == [Unowned("t-0", 100, 100)]


def test_the_first_start_and_the_last_stop_count_for_nothing() -> None:
    assert unowned_times([[started(10, "a", "t-0"), stopped(20, "a", "t-0")]], {}) == []
