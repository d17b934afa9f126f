"""Until when a consumer may read without hearing from ZooKeeper again (rule 7). Plain arithmetic on monotonic ms.

The lease is the moment of SENDING the last answered `sync` or write, plus two thirds of the NEGOTIATED session timeout.
A ping or a read proves nothing: a follower that is cut off from its leader answers those long after the leader has
expired the session. An answer extends the lease only once the own registration was seen to stand after it: an evicted
consumer has a session, too, and its watch is lost while its link is down. What was negotiated may become less: each
server that a session comes to has limits of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

SYNCS_PER_TIMEOUT = 6
"""One sync each T/6: three may be lost before the lease of 2T/3 ends."""


@dataclass(slots=True)
class Lease:
    """One session's lease. `until_ms` goes back only with the timeout."""

    timeout_ms: int  # the least that was negotiated
    until_ms: int = -1
    sync_at_ms: int = 0
    answered_ms: int | None = None  # when the newest request was sent that the leader answered

    def negotiated(self, timeout_ms: int) -> None:
        """The session goes on with this timeout; a shorter one counts from the moment at which the lease began, too."""
        if timeout_ms >= self.timeout_ms:
            return
        if self.until_ms >= 0:
            self.until_ms += _of(timeout_ms) - _of(self.timeout_ms)
        self.timeout_ms, self.sync_at_ms = timeout_ms, 0

    def answered(self, sent_ms: int) -> None:
        """Something that the leader answered was sent at `sent_ms`."""
        self.answered_ms = sent_ms if self.answered_ms is None else max(self.answered_ms, sent_ms)

    def extend(self) -> bool:
        """The registration is seen to stand, behind all that was answered; True when the lease is longer for it."""
        if self.answered_ms is None:
            return False
        before_ms, self.until_ms = self.until_ms, self.answered_ms + _of(self.timeout_ms)
        return self.until_ms > before_ms

    def holds(self, now_ms: int) -> bool:
        """True while reading is allowed."""
        return now_ms < self.until_ms

    def sync_due(self, now_ms: int) -> bool:
        """True once each T/6; asking counts as sending."""
        if now_ms < self.sync_at_ms:
            return False
        self.sync_at_ms = now_ms + max(1, self.timeout_ms // SYNCS_PER_TIMEOUT)
        return True

    def wake_at_ms(self, now_ms: int, *, connected: bool) -> int | None:
        """The next moment at which a sync is due (only while there is a link) or the lease ends."""
        until_ms = self.until_ms if self.until_ms > now_ms else None
        if not connected or self.sync_at_ms <= now_ms:
            return until_ms
        return self.sync_at_ms if until_ms is None else min(until_ms, self.sync_at_ms)


def _of(timeout_ms: int) -> int:
    return timeout_ms * 2 // 3
