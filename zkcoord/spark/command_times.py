"""How long commands took: those that were obeyed at once, and stops, which wait for the running batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class CommandTimes:
    """Written by the membership's worker thread, taken by the batch thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drain_ns = 0
        self._acknowledge_ns = 0

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Within it a start or a loss is obeyed."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            with self._lock:
                self._drain_ns += time.monotonic_ns() - began_ns

    @contextmanager
    def acknowledging(self) -> Iterator[None]:
        """Within it a stop waits and is answered."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            with self._lock:
                self._acknowledge_ns += time.monotonic_ns() - began_ns

    def take(self) -> tuple[int, int]:
        """Milliseconds of both since the last call."""
        with self._lock:
            found = self._drain_ns // 1_000_000, self._acknowledge_ns // 1_000_000
            self._drain_ns = self._acknowledge_ns = 0
            return found
