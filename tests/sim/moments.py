"""Values that describe moments of a world: a line of its applications' journal, a planned crash, and a failure."""

from __future__ import annotations

from typing import Any, NamedTuple


class SimulationError(AssertionError):
    """An invariant broke, or the world did not come to rest."""


class Entry(NamedTuple):
    """A line of the applications' journal. `start` and `end` are offsets; `end` is exclusive."""

    time_ms: int
    process: str
    client: str
    group: str
    event: str
    partition: Any = None
    start: int = -1
    end: int = -1


class CrashPlan(NamedTuple):
    """A planned fault at one process's n-th write request (counted from 1).

    `when`: before | after_applied_reply_lost | after (its reply was delivered and the step that took it was made): the
    process is killed exactly there. request_lost | reply_lost: the process lives, its connection breaks.
    """

    process: str
    at_write: int
    when: str
    restart_after_ms: int | None = 1_000
