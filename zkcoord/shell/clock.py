"""The loop's clock. Decisions get times as arguments; the simulated world gives the loop another clock."""

from __future__ import annotations

from zkcoord.clock import mono_ms


class MonotonicClock:
    """Milliseconds since an arbitrary moment. They never go back."""

    def now_ms(self) -> int:
        """The present moment."""
        return mono_ms()
