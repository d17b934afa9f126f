"""Judges how a partition is read, in Burrow's words, by readings of its committed offset and of its log's end.

The rules are those of Burrow's evaluation over a window of readings. If the lag is zero anywhere in the window, it is
OK. If there is no commit in the window, it is STOP. If all commits are at the same offset, it is STALL. If commits
advance and the lag grows without ever falling, it is WARN.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple


class Verdict(Enum):
    """Burrow's words for a partition. ERR means that the offset is not in the log."""

    OK = "OK"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    ERR = "ERR"


class LagReading(NamedTuple):
    """One reading: its time, the offset, the log's start and end, and a value that changes with each commit."""

    at_ms: int
    offset: int
    start: int
    end: int
    commit: tuple[int, ...]

    @property
    def lag(self) -> int:
        """The number of offsets that are left to read."""
        return self.end - self.offset


def verdict(readings: Sequence[LagReading], window_ms: int) -> Verdict | None:
    """Judge the readings, oldest first. None while they do not cover the window and nothing else decides.

    >>> seen = [LagReading(t, 5, 0, 9, (1,)) for t in (0, 30_000, 60_000)]
    >>> verdict(seen, 60_000), verdict(seen[:2], 60_000)
    (<Verdict.STOP: 'STOP'>, None)
    """
    last = readings[-1]
    if not last.start <= last.offset <= last.end:
        return Verdict.ERR
    if any(each.lag <= 0 for each in readings if last.at_ms - each.at_ms <= window_ms):
        return Verdict.OK
    if last.at_ms - readings[0].at_ms < window_ms:
        return None
    commits = [now for now, before in pairwise(reversed(readings)) if now.commit != before.commit]
    if not commits:
        return Verdict.STOP
    if all(each.offset == last.offset for each in readings):
        return Verdict.STALL
    in_turn = [readings[0], *reversed(commits)]
    if all(now.lag >= before.lag for before, now in pairwise(in_turn)) and last.lag > readings[0].lag:
        return Verdict.WARN
    return Verdict.OK


def within(readings: Sequence[LagReading], window_ms: int) -> tuple[LagReading, ...]:
    """Return the readings that a window needs: those in it, and the last one before it."""
    last_ms = readings[-1].at_ms
    older = [each for each in readings if last_ms - each.at_ms > window_ms]
    return (*older[-1:], *(each for each in readings if last_ms - each.at_ms <= window_ms))
