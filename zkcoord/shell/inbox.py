"""The inbox of a loop: any thread puts, the loop takes all that waits at once."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from zkcoord.shell.ports import Clock, Input


class ThreadInbox:
    """Inputs in the order of putting. Without a limit of its own: an input answers something that the loop asked for,
    or is an event of a one-shot watch or of the session's link, or a request, whose thread waits until it is answered
    or its time is over. So the program's threads and what the loop asked for are the bound."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: SimpleQueue[Input] = SimpleQueue()

    def put(self, item: Input) -> None:
        """Add an input; never blocks."""
        self._items.put(item)

    def take(self, until_ms: int | None) -> list[Input]:
        """All inputs that wait, as soon as there is one, or none when the clock shows `until_ms` (None: never)."""
        wait_s = None if until_ms is None else max(0, until_ms - self._clock.now_ms()) / 1000
        items: list[Input] = []
        try:
            items.append(self._items.get(timeout=wait_s))
            for _ in range(self._items.qsize()):
                items.append(self._items.get_nowait())
        except Empty:  # in time, or another thread takes what is there, too: whoever asks after the end does
            return items
        return items
