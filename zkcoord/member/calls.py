"""What the application was asked and has not answered yet, over all registrations of a consumer."""

from __future__ import annotations

from itertools import count
from typing import Any

from zkcoord.shell.ports import Callbacks

CALLS_WAITING_MAX = 20
"""So many calls may wait for an application that hangs. Then its consumer neither registers again nor starts again what
it holds before some are answered: else each flap of the network would leave another start and another `lost`, for ever.
One that works has two or three, a slow one whose session was lost a few times some more."""


class Calls:
    """The calls of one consumer's application."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._tokens = count(1)
        self._starts = count(1)
        self._waiting: dict[int, str] = {}  # token -> name of the call

    def ask(self, name: str, argument: Any) -> int:
        """Make a call; the token of its answer."""
        token = self.next_token()
        self._waiting[token] = name
        self._callbacks.call(token, name, argument)
        return token

    def next_token(self) -> int:
        """A new token, over all calls of this consumer."""
        return next(self._tokens)

    def next_start(self) -> int:
        """A new number for a call `start`, over all registrations of this consumer."""
        return next(self._starts)

    def answered(self, token: int) -> None:
        """Every call is answered once."""
        self._waiting.pop(token, None)

    @property
    def reading(self) -> bool:
        """True while the application may still read what it was told to give up: a `lost` or `stop` has no answer."""
        return not {"lost", "stop"}.isdisjoint(self._waiting.values())

    @property
    def full(self) -> bool:
        """True while nothing may be begun that makes more calls."""
        return len(self._waiting) >= CALLS_WAITING_MAX
