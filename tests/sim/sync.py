"""Locks, conditions, events, queues and timers for simulated threads, with the interface of Python's (`threads.py`)."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.sim.threads import Crew, SimThread, current


def _crew() -> Crew:
    me = current()
    assert me is not None
    return me.crew


class SimLock:
    """Stands in for `threading.Lock` and `RLock`."""

    reentrant = False

    def __init__(self) -> None:
        self._crew = _crew()
        self._owner: SimThread | None = None
        self._count = 0
        self._waiters: deque[SimThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; waiters get it in any order."""
        crew = self._crew
        if crew.dead:
            return True
        until_ms = crew.until_ms(timeout) if timeout >= 0 else None
        me = crew.current
        if self._owner is not None and (self._owner is not me or not self.reentrant):
            while self._owner is not None:
                if not blocking:
                    return False
                assert me is not None, "the world's own thread cannot wait"
                self._waiters.append(me)
                if not crew.park(until_ms):
                    self._waiters.remove(me)
                    return False
        self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._crew.dead:
            return
        if self._owner is not self._crew.current or not self._count:
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            while self._waiters:
                self._crew.wake(self._waiters.popleft())

    def locked(self) -> bool:
        """True while a thread has the lock."""
        return self._owner is not None

    def release_all(self) -> int:
        """Before a wait: release the lock, and return how often it was acquired."""
        count, self._count = self._count, min(1, self._count)
        self.release()
        return count

    def take_back(self, count: int) -> None:
        """After a wait: acquire the lock again, this many times."""
        self.acquire()
        self._count = count

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class SimRLock(SimLock):
    """Stands in for `threading.RLock`."""

    reentrant = True


class SimCondition:
    """Stands in for `threading.Condition`."""

    def __init__(self, lock: SimLock | None = None) -> None:
        self._crew = _crew()
        self._lock = lock or SimRLock()
        self._waiters: list[SimThread] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until notified; False at the timeout."""
        me = self._crew.me()
        until_ms = self._crew.until_ms(timeout)
        count = self._lock.release_all()
        self._waiters.append(me)
        try:
            return self._crew.park(until_ms)
        finally:
            if me in self._waiters:
                self._waiters.remove(me)
            self._lock.take_back(count)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until the predicate holds; returns its last value."""
        until_ms = self._crew.until_ms(timeout)
        result = predicate()
        while not result:
            left = None if until_ms is None else (until_ms - self._crew.now_ms()) / 1000
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """Wake `n` waiting threads."""
        woken, self._waiters = self._waiters[:n], self._waiters[n:]
        for thread in woken:
            self._crew.wake(thread)

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        self.notify(len(self._waiters))


class SimEvent:
    """Stands in for `threading.Event`."""

    def __init__(self) -> None:
        self._crew = _crew()
        self._set = False
        self._waiters: list[SimThread] = []

    def is_set(self) -> bool:
        """True when the event is set."""
        return self._set

    def set(self) -> None:
        """Set the event, and wake its waiters."""
        self._set = True
        waiters, self._waiters = self._waiters, []
        for thread in waiters:
            self._crew.wake(thread)

    def clear(self) -> None:
        """Reset the event."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set; returns whether it is."""
        until_ms = self._crew.until_ms(timeout)
        while not self._set:
            me = self._crew.me()
            self._waiters.append(me)
            if not self._crew.park(until_ms):
                if me in self._waiters:
                    self._waiters.remove(me)
                break
        return self._set


class SimTimer(SimThread):
    """Stands in for `threading.Timer`."""

    def __init__(self, interval: float, function: Callable[..., object], args: Any = None, kwargs: Any = None) -> None:
        super().__init__(target=self._run, daemon=True)
        self._over = SimEvent()
        self._interval, self._function, self._given = interval, function, (tuple(args or ()), dict(kwargs or {}))

    def cancel(self) -> None:
        """Cancel the timer."""
        self._over.set()

    def _run(self) -> None:
        if not self._over.wait(self._interval):
            self._function(*self._given[0], **self._given[1])


class SimQueue:
    """Stands in for `queue.SimpleQueue`. Any thread may put items."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._crew = _crew()
        self._waiters: deque[SimThread] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item; never waits."""
        self._items.append(item)
        if self._waiters:
            self._crew.wake(self._waiters.popleft())

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the oldest item; raises Empty at the timeout."""
        until_ms = self._crew.until_ms(timeout)
        while not self._items:
            me = self._crew.me()
            if block:
                self._waiters.append(me)
            if not block or not self._crew.park(until_ms):
                if me in self._waiters:
                    self._waiters.remove(me)
                raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """Return the oldest item; raises Empty when there is none."""
        return self.get(block=False)

    def put_nowait(self, item: Any) -> None:
        """Put an item, like `put`."""
        self.put(item)

    def qsize(self) -> int:
        """The number of items."""
        return len(self._items)

    def empty(self) -> bool:
        """True when there is no item."""
        return not self._items
