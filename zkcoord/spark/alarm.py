"""Warnings that somebody must act on: a batch that is about to be cut off by a stop, a run that was given nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import Batch

NEAR_SHARE = 0.7  # of the rebalance timeout: rare in a healthy consumer, early enough to look at the job


@contextmanager
def slow_batch_alarm(batch: Batch, group: str, rebalance_timeout_ms: int) -> Iterator[None]:
    """Logs `batch_slow` if the block runs for longer than NEAR_SHARE of the timeout. Leaves no thread behind."""
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


def tell_in_vain(group: str, consumer_id: str | None, waited_ms: int) -> None:
    """Logs `nothing_held`: a run ends that never had a partition. That is not the end of the records."""
    text = in_vain(consumer_id, waited_ms)
    log_event(logging.WARNING, "nothing_held", text, group=group, consumer=consumer_id, waited_ms=waited_ms)


def in_vain(consumer_id: str | None, waited_ms: int) -> str:
    """For people: what may be missing. `consumer_id`: None if it is not registered."""
    from zkcoord.consumer import why_nothing_is_held

    return f"nothing was read: waited {waited_ms} ms in vain for a partition; {why_nothing_is_held(consumer_id)}"
