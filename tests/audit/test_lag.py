"""Burrow's verdicts on a partition, over a window of readings."""

import pytest

from tests.migrate.memory_tree import MemoryTree
from zkcoord.audit.audit import Audit
from zkcoord.audit.auditor import Auditor
from zkcoord.audit.lag import LagReading, Verdict, verdict, within
from zkcoord.core.model import TopicPartition
from zkcoord.metrics.names import AUDIT_LAG

WINDOW_MS = 60_000


def readings(*points: tuple[int, int, int], start: int = 0) -> list[LagReading]:
    """One each 10 s: offset, end, and a number that changes with each commit."""
    return [LagReading(10_000 * n, offset, start, end, (commit,)) for n, (offset, end, commit) in enumerate(points)]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(5 + n, 9 + n, n) for n in range(7)], Verdict.OK),  # it keeps up
        ([(5, 5, 0)] * 2, Verdict.OK),  # nothing is left
        ([(5, 5, 0), *[(5, 9, 0)] * 6], Verdict.OK),  # it had nothing left within the window
        ([(5, 9, 0)] * 6, None),  # not looked at for long enough
        ([(5, 9, 0)] * 7, Verdict.STOP),
        ([(5, 9 + n, 0) for n in range(7)], Verdict.STOP),
        ([(5, 9, n) for n in range(7)], Verdict.STALL),
        ([(5 + n, 9 + 3 * n, n) for n in range(7)], Verdict.WARN),
        ([(5 + n, 9 + (3 * n if n < 6 else 9), n) for n in range(7)], Verdict.OK),  # it got nearer once
        ([(5, 9, 0)] * 3 + [(7, 9, 1)] * 4, Verdict.OK),  # one commit is enough
        ([(10, 9, 0)], Verdict.ERR),  # beyond the end
    ],
)
def test_the_verdict_is_as_burrow_words_it(points: list[tuple[int, int, int]], expected: Verdict | None) -> None:
    assert verdict(readings(*points), WINDOW_MS) is expected


def test_an_offset_whose_records_are_deleted_is_an_error_at_once() -> None:
    assert verdict(readings((5, 9, 0), start=6), WINDOW_MS) is Verdict.ERR


def test_a_window_keeps_what_it_needs_and_no_more() -> None:
    kept = within(readings(*[(5, 9, 0)] * 20), WINDOW_MS)

    assert [each.at_ms for each in kept] == [120_000, 130_000, 140_000, 150_000, 160_000, 170_000, 180_000, 190_000]
    assert verdict(kept, WINDOW_MS) is Verdict.STOP


def test_an_offset_beyond_its_log_takes_no_lag_away_from_the_others() -> None:
    lags = {("g", TopicPartition("clicks", n)): lag for n, lag in enumerate((-5, 7))}
    auditor = Auditor(MemoryTree(), "here", Audit(1, 1, lags=lags))

    assert [value for name, _, value in auditor.samples(0) if name is AUDIT_LAG] == [7]
