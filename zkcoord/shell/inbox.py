"""The inbox of a loop: any thread puts, the loop takes all that waits at once."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from zkcoord.shell.ports import Clock, Input

LOOK_SECONDS = 1.0
"""No wait is longer. A machine may be suspended, and a wait counts only the time that it runs. And Python handles a
signal between two waits of the main thread: one that comes right before that thread sleeps, or that the system hands to
another thread, does not wake it."""


class ThreadInbox:
    """Inputs in the order of putting. It needs no limit of its own. Each input answers the loop, or is an event of a
    one-shot watch or of the session's link, or is a request whose thread waits for the answer or its timeout. So the
    loop's requests and the program's threads are the bound."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: SimpleQueue[Input] = SimpleQueue()

    def put(self, item: Input) -> None:
        """Add an input; never blocks."""
        self._items.put(item)

    def take(self, until_ms: int | None) -> list[Input]:
        """Return all inputs that wait, as soon as there is one; none when the clock shows `until_ms` (None: never)."""
        items = self._first(until_ms)
        try:
            for _ in range(self._items.qsize() if items else 0):
                items.append(self._items.get_nowait())
        except Empty:  # another thread takes what is there, too: whoever asks after the end does
            return items
        return items

    def _first(self, until_ms: int | None) -> list[Input]:
        """Return the oldest input as soon as there is one; None when the time is over."""
        while True:
            left_s = LOOK_SECONDS if until_ms is None else max(0, until_ms - self._clock.now_ms()) / 1000
            try:
                return [self._items.get(timeout=min(left_s, LOOK_SECONDS))]
            except Empty:
                if until_ms is not None and self._clock.now_ms() >= until_ms:
                    return []
