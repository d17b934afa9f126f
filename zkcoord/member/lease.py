"""How long a consumer may read without hearing from ZooKeeper (rule 7). Plain arithmetic on monotonic ms.

The lease ends two thirds of the NEGOTIATED session timeout after the moment at which the last answered `sync` or write
was SENT. A ping or a read proves nothing: a follower that is cut off from its leader answers those long after the
leader has expired the session. An answer extends the lease only once the own registration was seen to exist after it.
The reason: an evicted consumer still has a session, and the watch on its registration tells nothing while its link is
down. The negotiated timeout may shrink, since each server that a session moves to has limits of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

SYNCS_PER_TIMEOUT = 6
"""Number of syncs in one session timeout T. The lease lasts 2T/3, so three syncs in a row may be lost before it
ends."""


@dataclass(slots=True)
class Lease:
    """The lease of one session. `until_ms` decreases only when the timeout does."""

    timeout_ms: int  # the shortest timeout that was negotiated
    until_ms: int = -1
    sync_at_ms: int = 0
    answered_ms: int | None = None  # when the newest request that the leader answered was sent

    def negotiated(self, timeout_ms: int) -> None:
        """The session goes on with this timeout. A shorter timeout also counts for the lease that has already begun."""
        if timeout_ms >= self.timeout_ms:
            return
        if self.until_ms >= 0:
            self.until_ms += _of(timeout_ms) - _of(self.timeout_ms)
        self.timeout_ms, self.sync_at_ms = timeout_ms, 0

    def answered(self, sent_ms: int) -> None:
        """Note that the leader answered a request that was sent at `sent_ms`."""
        self.answered_ms = sent_ms if self.answered_ms is None else max(self.answered_ms, sent_ms)

    def extend(self) -> bool:
        """The registration was seen to exist after everything that was answered. Returns True if this extends the
        lease."""
        if self.answered_ms is None:
            return False
        before_ms, self.until_ms = self.until_ms, self.answered_ms + _of(self.timeout_ms)
        return self.until_ms > before_ms

    def holds(self, now_ms: int) -> bool:
        """True while reading is allowed."""
        return now_ms < self.until_ms

    def sync_due(self, now_ms: int) -> bool:
        """True once every T/6. A call that returns True counts as sending the sync."""
        if now_ms < self.sync_at_ms:
            return False
        self.sync_at_ms = now_ms + max(1, self.timeout_ms // SYNCS_PER_TIMEOUT)
        return True

    def wake_at_ms(self, now_ms: int, *, connected: bool) -> int | None:
        """The next moment at which a sync is due (only while connected) or the lease ends."""
        until_ms = self.until_ms if self.until_ms > now_ms else None
        if not connected or self.sync_at_ms <= now_ms:
            return until_ms
        return self.sync_at_ms if until_ms is None else min(until_ms, self.sync_at_ms)


def _of(timeout_ms: int) -> int:
    return timeout_ms * 2 // 3
