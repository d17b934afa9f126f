"""A client of librdkafka's that is replaced by another one when it has had no answer for long.

librdkafka 2.16 may never find back to brokers that told it of no brokers while they started (its issue 5301).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zkcoord.kafka.coordinators import end_client

RENEW_SECONDS = 10.0
"""Without an answer until another client is made: a broker that starts again takes some seconds."""


class Renewed:
    """One AdminClient after the other. Safe for several threads. `client`: the present one; None: closed."""

    def __init__(self, opens: Callable[[], Any]) -> None:
        self._opens, self._lock = opens, threading.Lock()
        self._users = 0  # calls that are under way
        self._since: float | None = None  # when the first question without an answer was asked
        self.client: Any = opens()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within this block the client is not replaced."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def close(self) -> Any:
        """Make none any more. Return the last one, which is destroyed with its last reference; None: there is none."""
        with self._lock:
            ended, self.client = self.client, None
        return ended

    def heard(self, answered: bool) -> None:
        """Note whether a question was answered; replace the client once none was for long, and nobody uses it."""
        now = time.monotonic()
        with self._lock:
            since = now if self._since is None else self._since
            self._since = None if answered else since
            if answered or now < since + RENEW_SECONDS or self._users or self.client is None:
                return
            ended, self.client, self._since = self.client, self._opens(), None
        end_client(ended)
