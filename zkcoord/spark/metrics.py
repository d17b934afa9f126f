"""What a consumer has done so far, as numbers for a monitoring system, and the passing on of each report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from zkcoord.spark.ports import Progress, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Sums since the consumer was made, but `lag`, which is as it was last seen. Times in milliseconds."""

    batches: int = 0
    lost: int = 0  # batches that were dropped: their ownership was lost, or somebody asked for it
    offsets: int = 0
    rows: int = 0  # of those batches whose rows are known
    bytes: int = 0
    lag: int = 0
    drain_ms: int = 0
    plan_ms: int = 0
    process_ms: int = 0
    commit_ms: int = 0
    acknowledge_ms: int = 0


class Totals:
    """Adds up. Any thread may look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Metrics()

    def metrics(self) -> Metrics:
        """As it is now."""
        with self._lock:
            return self._now

    def add(self, report: Report) -> None:
        """A batch was committed."""
        with self._lock:
            now = self._now
            self._now = Metrics(
                batches=now.batches + 1,
                lost=now.lost,
                offsets=now.offsets + report.offsets,
                rows=now.rows + (report.rows or 0),
                bytes=now.bytes + (report.bytes or 0),
                lag=report.lag,
                drain_ms=now.drain_ms + report.drain_ms,
                plan_ms=now.plan_ms + report.plan_ms,
                process_ms=now.process_ms + report.process_ms,
                commit_ms=now.commit_ms + report.commit_ms,
                acknowledge_ms=now.acknowledge_ms + report.acknowledge_ms,
            )

    def lose(self) -> None:
        """A batch was dropped."""
        with self._lock:
            self._now = replace(self._now, lost=self._now.lost + 1)

    def see(self, lag: int) -> None:
        """The lag is known anew."""
        with self._lock:
            self._now = replace(self._now, lag=lag)


class ReportFanout:
    """`ports.Progress` that tells everybody: the line or log, the sums, the user's own function."""

    def __init__(self, shown: Progress, totals: Totals, on_report: Callable[[Report], object] | None) -> None:
        self._shown = shown
        self._totals = totals
        self._on_report = on_report

    def batch_done(self, report: Report) -> None:
        """A batch was committed. What the user's function raises ends the run; the batch stays committed."""
        self._totals.add(report)
        self._shown.batch_done(report)
        if self._on_report is not None:
            self._on_report(report)

    def batch_lost(self) -> None:
        """A batch was dropped."""
        self._totals.lose()
        self._shown.batch_lost()

    def idle(self, lag: int) -> None:
        """There is nothing to read."""
        self._totals.see(lag)
        self._shown.idle(lag)

    def close(self) -> None:
        """The run is over."""
        self._shown.close()
