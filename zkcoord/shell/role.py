"""The interface that a loop needs from its role, a coordinator's or a consumer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zkcoord.shell.ports import CallDone, CommitDone, Request
from zkcoord.tree.snapshot import Node

Events = Callable[[str, Mapping[str, Any]], None]
"""Where a role reports what happened: the event's name and its fields (docs/operations.md, "The log")."""


class Role(Protocol):
    """The methods that a loop calls. Every method runs on the loop's thread and returns at once."""

    def session_opened(self, session_id: int, session_timeout_ms: int, now_ms: int) -> None:
        """A new session is connected: want the first nodes."""

    def session_resumed(self, session_timeout_ms: int, now_ms: int) -> None:
        """The same session is connected again, perhaps with another timeout. All wanted nodes are read again."""

    def session_suspended(self, now_ms: int) -> None:
        """The link broke. What the tree holds is unknown until the link is back."""

    def session_lost(self, now_ms: int) -> None:
        """The session is over, and everything that was read is void: begin again."""

    def read(self, nodes: Sequence[Node], now_ms: int) -> None:
        """Take in nodes, in the order in which the server answered."""

    def committed(self, tag: Any, done: CommitDone, sent_ms: int, now_ms: int) -> None:
        """Take in the outcome of a transaction sent with `tag`."""

    def synced(self, sent_ms: int, now_ms: int) -> None:
        """Note that the leader answered a sync that was sent at `sent_ms`."""

    def called(self, done: CallDone, now_ms: int) -> None:
        """Take in the outcome of a callback of the application."""

    def requested(self, request: Request, now_ms: int) -> None:
        """Take in a request of the program around the loop. The role completes its future sooner or later."""

    def ended(self, now_ms: int) -> int | None:
        """The loop has ended or failed; only `called` follows. Returns when to ask again whether the session may be
        closed. None: it may be closed, and every caller has an answer."""

    def decide(self, now_ms: int) -> int | None:
        """Decide. Returns when to decide again at the latest, or None."""
