"""How the work goes, as the coordinator's probes hear it: also while a long batch runs.

Progress counts the offsets that were committed, and how often a running batch was seen to get on. So a batch that is
long and alive is not taken for one that hangs (F6), and one that hangs is: its work stands still.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from zkcoord.spark.ports import Membership, Meter

LOOK_MS = 1_000  # probes come seconds apart; a batch that is shorter costs no look at all


class ProgressHeartbeat:
    """Reports progress and lag to the membership. For the batch thread; `during` has a thread of its own."""

    def __init__(self, meter: Meter, membership: Membership) -> None:
        self._meter = meter
        self._membership = membership
        self._count = 0

    def report(self, lag: int, offsets: int = 0) -> None:
        """So many offsets were committed since the last report, so many are left."""
        self._count += offsets
        self._membership.report(self._count, lag)

    @contextmanager
    def during(self, tag: str, lag: int) -> Iterator[None]:
        """While this is open, each look at which the batch's jobs have got on counts as progress."""
        over = threading.Event()

        def watch() -> None:
            seen: object = None
            while not over.wait(LOOK_MS / 1000):
                now = self._meter.activity(tag)
                if now is None:
                    continue
                if seen not in (None, now):
                    self.report(lag, 1)
                seen = now

        thread = threading.Thread(target=watch, name=f"pulse-{tag}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
