"""The thread on which an application's callbacks run: in order, one at a time, never on the loop's thread (F16).

What waits here is bounded by who asks. A registration has one task, which waits for its answer before it asks again,
and a partition is told `lost` once for each start. While a callback hangs, each lease that ends and each registration
leaves a few calls here, of no more partitions than commands name (1,000 each); at `desk.CALLS_WAITING_MAX` of them
their consumer begins nothing anew.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkcoord.shell.ports import CallDone


class Worker:
    """Implements the Callbacks port over plain functions, by name."""

    def __init__(self, functions: Mapping[str, Callable[[Any], Any]], answer: Callable[[CallDone], None]) -> None:
        self._functions, self._answer = dict(functions), answer
        self._calls: queue.SimpleQueue[tuple[int, str, Any] | None] = queue.SimpleQueue()
        self._at: tuple[int, str] | None = None  # the call that is being served
        self._thread = threading.Thread(target=self._run, name="zkcoord-callbacks", daemon=True)

    def start(self) -> None:
        """Begin to serve calls."""
        self._thread.start()

    def call(self, token: int, name: str, argument: Any) -> None:
        """Queue a call; its CallDone comes through `answer`."""
        self._calls.put((token, name, argument))

    def answer_part(self, name: str, value: Any) -> bool:
        """Answer a part of the call `name` that is being served on this very thread; False when there is none."""
        at = self._at if threading.current_thread() is self._thread else None
        if at is None or at[1] != name:
            return False
        self._answer(CallDone(at[0], value, part=True))
        return True

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Serve what is queued, then end the thread; called from another thread. One that hangs is left (a daemon)."""
        self._calls.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            token, name, argument = call
            self._at = token, name
            try:
                done = CallDone(token, self._functions[name](argument))
            except Exception as error:  # whatever an application raises is an answer, and must not end the thread
                done = CallDone(token, None, error)
            self._answer(done)
