"""Watches a run: measures commands, warns of a slow batch, and reports the progress of a long one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from zkcoord.spark.ports import Membership, Meter
from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch

# share of the rebalance timeout: rarely reached in a healthy consumer, and early enough to look at the job
NEAR_SHARE = 0.7


class CommandTimes:
    """Measures the time for commands: "drain" for a start or a loss, "acknowledge" for a stop, which waits for the
    running batch.

    The membership's worker thread measures; the batch thread takes the sums.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent_ns = {"drain": 0, "acknowledge": 0}

    @contextmanager
    def measuring(self, kind: Literal["drain", "acknowledge"]) -> Iterator[None]:
        """Count the time of this block."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            with self._lock:
                self._spent_ns[kind] += time.monotonic_ns() - began_ns

    def take(self) -> tuple[int, int]:
        """Return the ms of both kinds since the last call."""
        with self._lock:
            drain_ns, acknowledge_ns = self._spent_ns.values()
            self._spent_ns = dict.fromkeys(self._spent_ns, 0)
        return drain_ns // 1_000_000, acknowledge_ns // 1_000_000


@contextmanager
def slow_batch_alarm(batch: Batch, group: str, rebalance_timeout_ms: int) -> Iterator[None]:
    """Log `batch_slow` if the block takes longer than NEAR_SHARE of the timeout. It leaves no thread behind."""
    began_ns = time.monotonic_ns()

    def tell() -> None:
        took_ms = (time.monotonic_ns() - began_ns) // 1_000_000
        log_event(
            logging.WARNING,
            "batch_slow",
            f"batch {batch.seq} of group {group} runs for {took_ms} ms; a stop waits at most {rebalance_timeout_ms} ms "
            "for it, and then drops it: raise rebalance_timeout_ms, or lower max_batch_ms or max_offsets_per_batch",
            group=group,
            batch=batch.id,
            seq=batch.seq,
            took_ms=took_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )

    timer = threading.Timer(rebalance_timeout_ms / 1000 * NEAR_SHARE, tell)
    timer.name, timer.daemon = f"alarm-batch-{batch.seq}", True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class ProgressHeartbeat:
    """Reports progress and lag to the membership, which answers the coordinator's probes with these values.

    Progress counts the committed offsets, and the looks at which a running batch had made progress. So a long batch
    that works is not taken for one that hangs (F6). For the batch thread; `during` has a thread of its own.
    """

    def __init__(self, meter: Meter, membership: Membership, look_ms: int) -> None:
        self._meter, self._membership, self._look_ms = meter, membership, look_ms
        self._count = 0

    def report(self, lag: int, offsets: int = 0) -> None:
        """Report `offsets` more as committed, and `lag` as the remaining ones."""
        self._count += offsets
        self._membership.report(self._count, lag)

    @contextmanager
    def during(self, tag: str, lag: int) -> Iterator[None]:
        """Inside this block, count each look at which the batch's jobs have advanced as progress."""
        over = threading.Event()

        def watch() -> None:
            seen: object = None
            while not over.wait(self._look_ms / 1000):
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
