"""How a partition's reading gets on, in Burrow's words, from readings of its committed offset and of its log's end.

The rules are those of Burrow's evaluation, over a window of readings: a lag of zero anywhere in it is OK; no commit
in it is STOP; commits at the same offset are STALL; commits that advance while the lag never falls are WARN.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple


class Verdict(Enum):
    """Burrow's words for a partition; ERR is for an offset that is not in its log."""

    OK = "OK"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    ERR = "ERR"


class LagReading(NamedTuple):
    """One reading: when it was made, the offset, the log's start and end, and what changes with each commit."""

    at_ms: int
    offset: int
    start: int
    end: int
    commit: tuple[int, ...]

    @property
    def lag(self) -> int:
        """What is left to read."""
        return self.end - self.offset


def verdict(readings: Sequence[LagReading], window_ms: int) -> Verdict | None:
    """Judge the readings, oldest first; None while they do not cover the window.

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
    """The readings that a window needs: those in it, and the last one before it."""
    last_ms = readings[-1].at_ms
    older = [each for each in readings if last_ms - each.at_ms > window_ms]
    return (*older[-1:], *(each for each in readings if last_ms - each.at_ms <= window_ms))
