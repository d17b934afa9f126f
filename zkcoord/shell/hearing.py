"""Decides when a server has been silent for too long. Plain arithmetic on monotonic ms.

kazoo's heartbeats do not work while requests are made: any request counts as a heartbeat for kazoo, so it never notices
a server that accepts requests and answers none. They work while nothing is requested. Answers to reads that were sent
after an unanswered sync or transaction do not count as a sign of life, either (`SessionState.overtakes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from zkcoord.shell.ports import CommitDone, Link, LinkChanged, ReadDone, StoreInput, SyncDone


@dataclass(slots=True)
class Hearing:
    """When the server was heard on the present link."""

    timeout_ms: int = 0  # session timeout
    heard_ms: int = 0  # when the server was last heard
    asked_ms: int | None = None  # since when an answer is awaited with nothing heard; None: no answer is awaited

    def heard(self, now_ms: int) -> None:
        """Note that the server was heard."""
        self.heard_ms, self.asked_ms = now_ms, None

    def leave_at_ms(self, now_ms: int, *, awaits: bool) -> int | None:
        """Return when to leave this server unless something comes: two thirds of the timeout after it was last heard,
        but not before half of the timeout after the question (a role may ask rarely). None: no answer is awaited."""
        if not awaits:
            self.asked_ms = None
            return None
        if self.asked_ms is None:
            self.asked_ms = now_ms
        return max(self.heard_ms + self.timeout_ms * 2 // 3, self.asked_ms + self.timeout_ms // 2)

    def left(self, now_ms: int) -> None:
        """Note that the connection was dropped. It is not dropped again before the same time has passed."""
        self.heard_ms = self.asked_ms = now_ms


def says_something(item: StoreInput) -> bool:
    """True when this input comes from the server, and not from the client because it lost its connection."""
    match item:
        case SyncDone():
            return item.ok
        case ReadDone():
            return item.nodes is not None
        case CommitDone():
            return item.answered
        case LinkChanged():
            return item.link is Link.CONNECTED
    return True
