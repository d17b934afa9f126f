"""The machine's monotonic clock in whole milliseconds: one for all its processes, so their times can be compared."""

from __future__ import annotations

import time


def mono_ms() -> int:
    """The present moment, since an arbitrary one; never goes back."""
    return time.monotonic_ns() // 1_000_000
