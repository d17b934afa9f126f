"""The loop's clock. What decides gets moments as arguments; the simulated world gives the loop another clock."""

from __future__ import annotations

from zkcoord.clock import mono_ms


class MonotonicClock:
    """Milliseconds that never go back, since an arbitrary moment."""

    def now_ms(self) -> int:
        """The present moment."""
        return mono_ms()
