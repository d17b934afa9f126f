"""The machine's clock for waits and leases, in whole milliseconds. It is one for all processes of a machine.

On Linux it is CLOCK_BOOTTIME, which goes on while the machine is suspended: even then a lease must not outlast its
session. On other systems it is Python's monotonic clock, which may stand still while the machine is suspended.
"""

from __future__ import annotations

import time

BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def mono_ms() -> int:
    """Return the milliseconds since an arbitrary moment; the value never goes back."""
    now_ns = time.monotonic_ns() if BOOTTIME is None else time.clock_gettime_ns(BOOTTIME)
    return now_ns // 1_000_000
