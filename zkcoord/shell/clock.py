"""The only reader of the monotonic clock."""

from __future__ import annotations

import time


class MonotonicClock:
    """Milliseconds that never go back, since an arbitrary moment."""

    def now_ms(self) -> int:
        """The present moment."""
        return time.monotonic_ns() // 1_000_000
