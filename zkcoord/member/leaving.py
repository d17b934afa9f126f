"""How a consumer's session ends: the consumer leaves, it releases everything after a reject, or it gives its
registration up.

Others may take its partitions once its registration is gone, and the registration goes with the session. So a session
that is given up while its registration may exist stays open until the application has answered `lost` and `stop`, but
no longer than the lease: then reading has ended in any case. The same holds for the last session of a loop that ends
with an error (F80).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from zkcoord.member.calls import Calls
from zkcoord.member.lease import Lease
from zkcoord.member.registered import Registered
from zkcoord.shell.loop import Loop

REJOIN_MS = (1_000, 2_000, 5_000, 10_000, 30_000)
"""Waits in ms before the next registration after a lost one. Each further loss in a row takes the next wait, since the
cause is likely to last."""

REJECTED_MS = (30_000, 60_000, 120_000, 300_000)
"""Waits in ms before the next registration after a reject. They are long, since somebody must change a setting
first."""

LOOK_MS = 100
"""ms between two questions to the application whether it still works on lost partitions. No event tells that it has
finished."""


def open_until_ms(lease: Lease | None, registered: Registered | None, now_ms: int) -> int:
    """Until when a session is kept open at most. Its end frees the held partitions. Where owners do not go with their
    session, this is so only while the registration exists. (Where they do, an evicted consumer's claims keep old
    members off, which know no grace.)"""
    if lease is None or registered is None:
        return now_ms
    if registered.watch.unregistered and not registered.paths.layout.ownership.claimed:
        return now_ms
    return lease.until_ms


class Parting:
    """The ends of one consumer's sessions, and the waits before the next session."""

    def __init__(self, loop: Loop, calls: Calls, at_rest: Callable[[], bool]) -> None:
        """`at_rest` returns True when the application works on no lost partition any more, as far as it can tell."""
        self._loop, self._calls, self._at_rest = loop, calls, at_rest
        self._losses = self._rejections = 0  # in a row; an acknowledged start sets them to 0
        self._leaving: list[Future[None]] = []
        self._until_ms: int | None = None  # until when a session that was given up may stay open
        self._error: BaseException | None = None  # why the consumer gives up for good

    @property
    def leaving(self) -> bool:
        """True when the consumer was asked to leave."""
        return bool(self._leaving)

    @property
    def under_way(self) -> bool:
        """True while a session that was given up is still open."""
        return self._until_ms is not None

    def leave(self, future: Future[None]) -> None:
        """The consumer is asked to leave. `future` is completed when it has left."""
        self._leaving.append(future)

    def started(self) -> None:
        """A start was acknowledged: the next wait is the shortest one again."""
        self._losses = self._rejections = 0

    def give_up(self, error: BaseException | None, until_ms: int, now_ms: int) -> None:
        """The registration is given up, and the application was told. End the session once the application has
        answered, or at `until_ms` (the lease's end). Then register again after a wait; with an `error`, never."""
        if self._until_ms is None:  # else it was given up before, and the application may not have obeyed yet
            self._until_ms = until_ms
        self._error = self._error or error
        self.advance(now_ms)

    def advance(self, now_ms: int) -> int | None:
        """End a session that was given up, if it is time. Returns when to look again."""
        if self._until_ms is None:
            return None
        wait_ms = self._wait(self._until_ms, now_ms)
        if wait_ms is None:
            self._end_given_up(now_ms)
        return wait_ms

    def last(self, until_ms: int, now_ms: int) -> int | None:
        """The loop is over, and the application was told. Returns when to look again whether it may still read. None:
        it does not read any more, or `until_ms` (the lease's end) is over. Then all calls of `leave` are answered."""
        if self._until_ms is None:  # else it was given up before, and that lease's end counts
            self._until_ms = until_ms
        wait_ms = self._wait(self._until_ms, now_ms)
        if wait_ms is None:
            self.left()
        return wait_ms

    def _wait(self, until_ms: int, now_ms: int) -> int | None:
        if now_ms >= until_ms or (not self._calls.reading and self._at_rest()):
            return None
        return until_ms if self._calls.reading else min(until_ms, now_ms + LOOK_MS)

    def session_lost(self, now_ms: int) -> None:
        """The session has ended by itself: if it was given up, the wait is over."""
        if self.under_way:
            self._end_given_up(now_ms)

    def released(self, now_ms: int) -> None:
        """Everything is released: end the session. After a reject, register again later."""
        wait_ms = REJECTED_MS[min(self._rejections, len(REJECTED_MS) - 1)]
        self._rejections += 1
        self.end(now_ms, wait_ms)

    def end(self, now_ms: int, reopen_in_ms: int | None = None) -> None:
        """End the session, and open the next one after `reopen_in_ms`. It is never opened with None, or when the
        consumer was asked to leave."""
        self._loop.end_session(now_ms, reopen_in_ms=None if self._leaving else reopen_in_ms)
        self.left()

    def left(self) -> None:
        """The session is over: complete the futures of `leave`."""
        for future in self._leaving:
            future.set_result(None)
        self._leaving.clear()

    def _end_given_up(self, now_ms: int) -> None:
        error, self._until_ms, self._error = self._error, None, None
        if error is not None:
            self._loop.fail(error, now_ms)
            return
        wait_ms = REJOIN_MS[min(self._losses, len(REJOIN_MS) - 1)]
        self._losses += 1
        self.end(now_ms, wait_ms)
