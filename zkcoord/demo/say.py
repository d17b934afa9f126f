"""Prints what happens while the demo runs, for a person: one line for each event, on standard error."""

from __future__ import annotations

import sys
import time
from contextlib import suppress


class Voice:
    """Prints lines, each with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()

    def say(self, text: str) -> None:
        """One line."""
        self.show(f"[{(time.monotonic_ns() - self._began_ns) / 1e9:6.1f} s] {text}")

    def show(self, text: str) -> None:
        """Print a line without the time. An error is ignored, since the terminal may be closed at any time."""
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)
