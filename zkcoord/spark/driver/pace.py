"""How much a batch may read, and when it may begin, so that batches take as long as their user wants. Pure.

    fewer      a batch that took longer than `max_batch_ms` makes the next ones smaller, in proportion
    more       one that was full and took less than half of it lets the next one be twice as large
    wait       a batch begins when it would be full, or `min_batch_ms` after the one before began

So a batch that is too long occurs once, and not again and again. The fixed cost of a batch cannot shrink it to nothing.
"""

from __future__ import annotations

LEAST_OFFSETS = 1_000  # below it the fixed cost of a batch, about 70 ms, is the greater part


class Pace:
    """Times are ms of one clock that only rises."""

    def __init__(self, *, max_offsets: int, min_batch_ms: int, max_batch_ms: int) -> None:
        self._max_offsets, self._min_batch_ms = max_offsets, min_batch_ms
        self.max_batch_ms = max_batch_ms  # it may change between batches
        self._began_ms: int | None = None
        self.offsets = max_offsets
        """How many the next batch may read."""

    def wait_ms(self, waiting_offsets: int, now_ms: int) -> int:
        """Return how long to wait for more than these offsets. 0: begin the batch.

        >>> pace = Pace(max_offsets=100, min_batch_ms=50, max_batch_ms=1000)
        >>> pace.began(now_ms=0)
        >>> pace.wait_ms(7, now_ms=20), pace.wait_ms(100, now_ms=20), pace.wait_ms(7, now_ms=50)
        (30, 0, 0)
        """
        if self._began_ms is None or waiting_offsets >= self.offsets:
            return 0
        return max(0, self._began_ms + self._min_batch_ms - now_ms)

    def began(self, now_ms: int) -> None:
        """Note that a batch begins."""
        self._began_ms = now_ms

    def ended(self, offsets: int, took_ms: int) -> bool:
        """Note that a batch of this many offsets was processed. True if it makes the next ones smaller.

        >>> pace = Pace(max_offsets=8000, min_batch_ms=0, max_batch_ms=1000)
        >>> pace.ended(8000, took_ms=2000), pace.offsets
        (True, 4000)
        >>> pace.ended(4000, took_ms=400), pace.offsets
        (False, 8000)
        """
        before = self.offsets
        if took_ms > self.max_batch_ms:
            fewer = max(offsets * self.max_batch_ms // took_ms, LEAST_OFFSETS)
            self.offsets = min(self.offsets, fewer)
        elif took_ms * 2 < self.max_batch_ms and offsets >= self.offsets:
            self.offsets = min(self.offsets * 2, self._max_offsets)
        return self.offsets < before
