"""What a person reads while it runs: one line for each thing that happens, on standard error."""

from __future__ import annotations

import sys
import time
from contextlib import suppress


class Voice:
    """Lines with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()

    def say(self, text: str) -> None:
        """One line."""
        self.show(f"[{(time.monotonic_ns() - self._began_ns) / 1e9:6.1f} s] {text}")

    def show(self, text: str) -> None:
        """A line without the time. Whether anybody reads it does not matter: a terminal may be closed at any time."""
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)
