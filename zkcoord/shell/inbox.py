"""The inbox of a loop. Any thread adds inputs; the loop takes all of them at once."""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue

from zkcoord.shell.ports import Clock, Input

LOOK_SECONDS = 1.0
"""s: the longest single wait. First, a machine may be suspended, and a wait counts only the time in which the machine
runs. Second, Python handles a signal between two waits of the main thread. A signal that comes right before that thread
sleeps, or that the system hands to another thread, does not wake it."""


class ThreadInbox:
    """Inputs in the order in which they were added. The inbox needs no limit of its own: each input answers the loop,
    or is an event of a one-shot watch or of the session's link, or is a request whose thread waits for the answer or a
    timeout. So the loop's requests and the program's threads limit it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: deque[Input] = deque()
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def put(self, item: Input) -> None:
        """Add an input, and wake the waiting thread. Never blocks."""
        self._items.append(item)
        self._wakes.put(None)

    def add(self, item: Input) -> None:
        """Add an input, and wake no thread."""
        self._items.append(item)

    def wake(self) -> None:
        """Wake the waiting thread, even if there is no input."""
        self._wakes.put(None)

    def wait(self, until_ms: int | None) -> None:
        """Return when somebody wakes this thread, or has done so since the last wait; else when the clock shows
        `until_ms` (None: never).

        Only one thread may wait at a time.
        """
        while True:
            left_s = LOOK_SECONDS if until_ms is None else max(0, until_ms - self._clock.now_ms()) / 1000
            try:
                self._wakes.get(timeout=min(left_s, LOOK_SECONDS))
            except Empty:
                if until_ms is not None and self._clock.now_ms() >= until_ms:
                    return
                continue
            for _ in range(self._wakes.qsize()):
                self._wakes.get_nowait()
            return

    def take(self) -> list[Input]:
        """Remove and return all inputs."""
        items: list[Input] = []
        try:
            while True:
                items.append(self._items.popleft())
        except IndexError:  # another thread may take inputs at the same time
            return items
