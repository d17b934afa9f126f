"""The calls that wait for the application's answer, over all registrations of one consumer."""

from __future__ import annotations

from itertools import count
from typing import Any

from zkcoord.shell.ports import Callbacks

CALLS_WAITING_MAX = 20
"""Number of calls that may wait for an application that hangs. At this number its consumer neither registers again nor
resumes what it holds, until some calls are answered. Without a limit each flap of the network would add a `start` and a
`lost`. An application that works has two or three calls waiting; a slow one whose session was lost a few times has some
more."""


class Calls:
    """The calls of one consumer's application."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._tokens = count(1)
        self._starts = count(1)
        self._waiting: dict[int, str] = {}  # token -> name of the call

    def ask(self, name: str, argument: Any) -> int:
        """Make a call, and return the token of its answer."""
        token = self.next_token()
        self._waiting[token] = name
        self._callbacks.call(token, name, argument)
        return token

    def next_token(self) -> int:
        """A new token. Tokens are unique over all calls of this consumer."""
        return next(self._tokens)

    def next_start(self) -> int:
        """A new number for a call `start`. Numbers are unique over all registrations of this consumer."""
        return next(self._starts)

    def answered(self, token: int) -> None:
        """Note that the application answered this call. Each call is answered once."""
        self._waiting.pop(token, None)

    @property
    def reading(self) -> bool:
        """True while the application may still read partitions that it was told to give up: a `lost` or `stop` is not
        answered."""
        return not {"lost", "stop"}.isdisjoint(self._waiting.values())

    @property
    def full(self) -> bool:
        """True while so many calls wait that nothing may begin that makes more calls."""
        return len(self._waiting) >= CALLS_WAITING_MAX
