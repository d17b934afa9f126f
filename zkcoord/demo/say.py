"""What a person reads while it runs: one line for each thing that happens, on standard error."""

from __future__ import annotations

import sys
import time


class Voice:
    """Lines with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()

    def say(self, text: str) -> None:
        """One line."""
        seconds = (time.monotonic_ns() - self._began_ns) / 1e9
        print(f"[{seconds:6.1f} s] {text}", file=sys.stderr, flush=True)
