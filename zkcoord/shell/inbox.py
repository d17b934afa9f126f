"""The inbox of a loop: any thread puts, the loop takes all that waits at once."""

from __future__ import annotations

import threading

from zkcoord.shell.ports import Clock, Input


class ThreadInbox:
    """Inputs in the order of putting. Without a limit of its own: an input answers something that the loop asked for,
    or is an event of a one-shot watch or of the session's link, or a request, whose thread waits until it is answered
    or its time is over. So the program's threads and what the loop asked for are the bound."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: list[Input] = []
        self._lock = threading.Lock()
        self._some = threading.Condition(self._lock)

    def put(self, item: Input) -> None:
        """Add an input; never blocks."""
        with self._lock:
            self._items.append(item)
            self._some.notify()

    def take(self, until_ms: int | None) -> list[Input]:
        """All inputs that wait, as soon as there is one, or none when the clock shows `until_ms` (None: never)."""
        with self._lock:
            while not self._items:
                if until_ms is None:
                    self._some.wait()
                    continue
                left_ms = until_ms - self._clock.now_ms()
                if left_ms <= 0:
                    return []
                self._some.wait(left_ms / 1000)
            items, self._items = self._items, []
            return items
