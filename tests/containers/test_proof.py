"""The checker of the consumers' logs can fail: made-up logs with an overlap, a gap, a step back, and those without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.containers.proof import Log, Reading, judge

Event = dict[str, Any]


def started(at_ms: int, offset: int = 0) -> Event:
    return {"event": "fetch_started", "mono_ms": at_ms, "partitions": ["t-0"], "offsets": {"t-0": offset}}


def stopped(at_ms: int, offset: int) -> Event:
    return {"event": "fetch_stopped", "mono_ms": at_ms, "partitions": ["t-0"], "offsets": {"t-0": offset}}


def lost(at_ms: int, event: str = "fetch_lost") -> Event:
    return {"event": event, "mono_ms": at_ms, "partitions": ["t-0"]}


def lease(at_ms: int, until_ms: int) -> Event:
    return {"event": "lease_extended", "mono_ms": at_ms, "lease_until_mono_ms": until_ms}


def fetched(at_ms: int, first: int, last: int) -> Event:
    return {"event": "fetched", "mono_ms": at_ms, "partition": "t-0", "first": first, "last": last}


def committed(at_ms: int, offset: int) -> Event:
    return {"event": "offsets_committed", "mono_ms": at_ms, "offsets": {"t-0": offset}}


def wrong(a: list[Event], b: list[Event] | None = None, resumed_ms: tuple[int, ...] = ()) -> list[str]:
    """What is wrong with the logs of a and b."""
    return list(judge([Log(name="a", events=a, resumed_ms=resumed_ms), Log(name="b", events=b or [])]).wrong)


BEGIN = [lease(0, 4_000), started(1_000), fetched(1_100, 0, 9), committed(1_200, 10)]
"""a reads ten records and commits them; it may read on until 4000."""


def test_a_partition_that_goes_from_hand_to_hand_is_fine() -> None:
    a = [*BEGIN, fetched(1_300, 10, 12), stopped(1_505, 13)]
    b = [lease(0, 9_000), started(1_501, 13), fetched(1_510, 13, 13), committed(1_600, 14)]

    verdict = judge([Log(name="a", events=a), Log(name="b", events=b)])

    assert verdict.wrong == ()
    assert verdict.readings == {"t-0": Reading(first=0, end=14, committed=14, processes=("a", "b"))}
    assert verdict.offsets() == {"t-0": (0, 14)}


def test_the_order_of_the_logs_does_not_matter() -> None:
    a = Log(name="a", events=[*BEGIN, stopped(1_505, 10)])
    b = Log(name="b", events=[lease(0, 9_000), started(1_501, 10)])

    assert judge([a, b]) == judge([b, a])


def test_two_who_read_at_one_time_are_seen() -> None:
    a = [*BEGIN, fetched(2_000, 10, 10), stopped(2_100, 10)]

    assert wrong(a, [lease(0, 9_000), started(1_900, 10)]) == [
        "t-0: b starts at 1900, a may read until 2000",
    ]


@pytest.mark.parametrize("end", [[], [lost(3_950)], [lost(5_000)], [lost(5_000, "session_lost")]])
def test_one_that_does_not_stop_cleanly_counts_until_its_lease_ends(end: list[Event]) -> None:
    early, late = ([lease(0, 9_000), started(at_ms, 10)] for at_ms in (3_940, 4_001))

    assert wrong([*BEGIN, *end], late) == []
    until_ms = 3_950 if end == [lost(3_950)] else 4_000
    assert wrong([*BEGIN, *end], early) == [f"t-0: b starts at 3940, a may read until {until_ms}"]


def test_a_short_tenure_in_the_midst_of_a_long_one_does_not_hide_it() -> None:
    a = [*BEGIN, fetched(3_000, 10, 10), stopped(3_010, 10)]
    b = [lease(0, 9_000), started(1_500, 10), stopped(1_600, 10), started(2_000, 10)]

    assert wrong(a, b) == [
        "t-0: b starts at 1500, a may read until 3000",
        "t-0: b starts at 2000, a may read until 3000",
    ]


def test_reading_beyond_the_lease_is_seen() -> None:
    assert wrong([*BEGIN, fetched(4_150, 10, 10)]) == []
    assert wrong([*BEGIN, fetched(4_250, 10, 10)]) == ["t-0: a handed out 10 at 4250, the lease ended at 4000"]
    assert wrong([*BEGIN, fetched(4_250, 10, 10), lease(4_251, 9_000)]) == []


def test_reading_what_is_not_held_is_seen() -> None:
    assert wrong([lease(0, 4_000), fetched(1_000, 0, 0)]) == ["t-0: a handed out 0 at 1000, which it does not hold"]
    assert wrong([*BEGIN, stopped(1_500, 10), fetched(1_501, 10, 10)]) == [
        "t-0: a handed out 10 at 1501, which it does not hold"
    ]
    assert wrong([*BEGIN, lost(1_500), fetched(1_501, 10, 10)]) == []
    assert wrong([*BEGIN, lost(1_500), fetched(1_701, 10, 10)]) == [
        "t-0: a handed out 10 at 1701, which it does not hold"
    ]


def test_a_woken_process_may_hand_out_records_once_but_not_commit_them() -> None:
    b = [lease(0, 29_000), started(9_000, 10), fetched(9_001, 10, 10), committed(9_500, 11)]
    woken = [*BEGIN, fetched(20_010, 10, 14), lost(20_020)]

    assert wrong(woken, b, resumed_ms=(20_000,)) == []
    assert wrong(woken, b) == [
        "t-0: a handed out 10 at 20010, the lease ended at 4000",
        "t-0: b starts at 9000, a may read until 20010",
    ]
    assert wrong([*woken, committed(20_030, 15)], b, resumed_ms=(20_000,)) == [
        "t-0: a at 1000 commits 15, nobody has handed out 10",
        "t-0: b at 9000 starts at 10, 15 is committed",
        "t-0: b at 9000 commits 11 after 15",
    ]


def test_a_record_left_out_is_seen() -> None:
    assert wrong([*BEGIN, fetched(1_300, 11, 12)]) == ["t-0: a handed out 11 after 9 at 1300"]
    assert wrong([lease(0, 4_000), started(1_000, 5), fetched(1_100, 6, 6)]) == ["t-0: a handed out 6 after 4 at 1100"]


def test_a_start_beyond_what_was_handed_out_is_seen() -> None:
    assert wrong([*BEGIN, stopped(1_500, 10)], [started(2_000, 12)]) == [
        "t-0: b at 2000 starts at 12, nobody has handed out 10"
    ]


def test_a_start_before_what_was_committed_is_seen() -> None:
    assert wrong([*BEGIN, stopped(1_500, 10)], [started(2_000, 9)]) == ["t-0: b at 2000 starts at 9, 10 is committed"]


def test_a_commit_of_a_dead_one_that_nobody_logged_is_no_step() -> None:
    a = [*BEGIN, fetched(1_300, 10, 19), lost(1_500, "session_lost")]

    assert wrong(a, [lease(0, 9_000), started(2_000, 15), fetched(2_001, 15, 15)]) == []


def test_a_commit_that_goes_back_is_seen() -> None:
    assert wrong([*BEGIN, committed(1_300, 9)]) == ["t-0: a at 1000 commits 9 after 10"]
    assert wrong([*BEGIN, stopped(1_300, 9)]) == ["t-0: a at 1000 commits 9 after 10"]


def test_a_commit_of_what_nobody_handed_out_is_seen() -> None:
    assert wrong([*BEGIN, committed(1_300, 11)]) == ["t-0: a at 1000 commits 11, nobody has handed out 10"]
    assert wrong([committed(1_300, 11)]) == ["t-0: a committed 11 without having started"]


def test_one_that_lost_its_lease_goes_on_from_what_was_committed() -> None:
    again = [*BEGIN, fetched(1_300, 10, 12), lost(4_000), lease(5_000, 9_000), started(5_010, 10)]

    assert wrong([*again, fetched(5_020, 10, 12), committed(5_030, 13)]) == []
    assert wrong([*again, fetched(5_020, 13, 13)]) == ["t-0: a handed out 13 after 9 at 5020"]


def test_a_second_start_of_what_it_reads_is_seen() -> None:
    assert wrong([*BEGIN, started(1_500, 10)]) == [
        "t-0: a started at 1500, which it reads already",
        "t-0: a starts at 1500, a may read until 4000",
    ]
