"""Passes one batch at a time between the driver loop's thread, which plans and commits, and Spark's thread, which asks
for offsets.

    loop: await_turn ──► plan ──► process ═══════ waits ═══════► commit ──► await_turn ──► ...
    Spark:    `next` ───────────► batch, which Spark runs; `next` again: it is complete

The loop plans only while Spark asks. So a stop between two batches finds no batch under way, and is obeyed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.spark.ranges import Batch

SETTLE_WAIT_MS = 10_000  # for the commit of a completed batch; if ZooKeeper is away for longer, Spark asks again


class WithdrawnError(Exception):
    """The batch is fenced, and Spark does not read it."""


class Handover:
    """Thread safe. It is the loop's `ports.Jobs`: a source cannot cancel a batch that Spark runs."""

    def __init__(self) -> None:
        self.allowed: Callable[[TopicPartition], bool] = lambda partition: True  # the membership's, once it is made
        self._changed = Condition()
        self._wanted = False  # True while Spark asks for a batch
        self._waiting = False  # True while the loop is in `await_turn`
        self._idle = False  # True if a turn that began after Spark's question found no records
        self._offered: Batch | None = None  # planned, and not taken by Spark yet
        self._taken: Batch | None = None  # the batch that Spark runs
        self._tag = ""  # the loop's tag of the batch in `process`
        self._withdrawn = False  # True if that batch was cancelled: Spark does not have it, and will not get it
        self._closing = False
        self._ended = False
        self._error: BaseException | None = None

    # the loop's thread

    def await_turn(self) -> None:
        """Return when Spark asks for a batch, or the source is closing."""
        with self._changed:
            self._waiting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._wanted or self._closing)
            self._waiting = False

    def process(self, frame: object, batch: Batch) -> None:
        """Wait until Spark has run the batch. It is the loop's `Process`. Raises WithdrawnError if the batch is fenced
        before."""
        with self._changed:
            self._offered = None if self._withdrawn else batch
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._offered is None and self._taken is None)
            if self._withdrawn:
                raise WithdrawnError

    def idle(self) -> None:
        """Note that the turn found no records."""
        with self._changed:
            self._idle = True
            self._changed.notify_all()

    def ended(self, error: BaseException | None) -> None:
        """Note that the loop has ended, with this error."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    # ports.Jobs

    @contextmanager
    def running(self, tag: str, description: str) -> Iterator[None]:
        """Inside this block `cancel` means this batch. (Spark names a stream's jobs by its query.)"""
        with self._changed:
            self._tag, self._withdrawn = tag, False
        yield

    def cancel(self, tag: str) -> None:
        """Withdraw the batch, unless Spark runs it. From this moment on Spark cannot take it."""
        with self._changed:
            if tag == self._tag and (self._taken is None or self._closing):
                self._withdrawn = True
                self._offered = self._taken = None
                self._changed.notify_all()

    # Spark's thread

    def complete(self) -> None:
        """Note that Spark has run the batch. Returns when the loop has committed or dropped it, or after
        SETTLE_WAIT_MS.

        Raises the error that ended the loop.
        """
        with self._changed:
            if self._taken is not None:
                self._taken = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._ended, SETTLE_WAIT_MS / 1000)
            self._raise_if_ended()

    def next(self, timeout_ms: int) -> Batch | None:
        """Take the next batch. None: there is nothing to read now, or no answer came in time.

        A batch that waited for longer than a lease may not be allowed any more: it is not taken, and the loss withdraws
        it. Raises the error that ended the loop.
        """
        with self._changed:
            self._wanted, self._idle = True, False
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._offered or self._idle or self._ended, timeout_ms / 1000)
            finally:
                self._wanted = False
            self._raise_if_ended()
            batch = self._offered
            if batch is None or not all(self.allowed(each.topic_partition) for each in batch.ranges):
                return None
            self._taken, self._offered = batch, None
            return batch

    def await_end(self, timeout_ms: int) -> None:
        """Return after this time. Raises the error if one ends the loop meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, timeout_ms / 1000)
            self._raise_if_ended()

    def close(self) -> None:
        """Note that Spark will not ask again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _raise_if_ended(self) -> None:
        if self._ended:
            raise self._error or UnavailableError("the group was left; start the query again")
