"""Decides when a server has been silent for too long. Plain arithmetic on monotonic ms.

kazoo's heartbeats cannot tell while requests are made: kazoo takes any request for one, so it never notices a server
that takes requests and answers none. They can tell while nothing is asked. Answers to reads behind a sync
or a transaction without an answer cannot tell either (`SessionState.overtakes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from zkcoord.shell.ports import CommitDone, Link, LinkChanged, ReadDone, StoreInput, SyncDone


@dataclass(slots=True)
class Hearing:
    """News of the server on the present link."""

    timeout_ms: int = 0  # of the session
    heard_ms: int = 0  # when something came last
    asked_ms: int | None = None  # since when an answer is awaited and nothing came; None: none is awaited

    def heard(self, now_ms: int) -> None:
        """Note that the server has said something."""
        self.heard_ms, self.asked_ms = now_ms, None

    def leave_at_ms(self, now_ms: int, *, awaits: bool) -> int | None:
        """Return when to leave this server unless something comes: two thirds of the timeout after its last word, but
        not before half of it after the question (a role may ask rarely). None: it owes no answer."""
        if not awaits:
            self.asked_ms = None
            return None
        if self.asked_ms is None:
            self.asked_ms = now_ms
        return max(self.heard_ms + self.timeout_ms * 2 // 3, self.asked_ms + self.timeout_ms // 2)

    def left(self, now_ms: int) -> None:
        """Note that the connection was dropped. It takes as long again before that is repeated."""
        self.heard_ms = self.asked_ms = now_ms


def says_something(item: StoreInput) -> bool:
    """True when this input comes from the server, not from the client that lost its connection."""
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
