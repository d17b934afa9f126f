"""kazoo's threading handler with one queue and one worker for everything, and with poll(2) for waiting.

kazoo's own handler has a queue and a thread each for watch events and for replies, which loses their order. Here both
are in one queue, in the order in which the connection's thread read them. kazoo's own `select` also opens and closes an
epoll object at every wait.

The queue has no limit of its own: no entry may be dropped, and its writer, the connection, must not block. It holds at
most one entry for each request without an answer (the loop limits those: reads by `READS_PER_REQUEST_MAX` in a step, a
group's decisions by `DECISIONS_MAX`), and one for each watch. A watch fires once, and only a read that the loop sends
after the event sets it again. The worker's functions put into the inbox, and do not wait.
"""

from __future__ import annotations

import errno
import logging
import math
import select
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_LOG = logging.getLogger("zkcoord.zk")
_READABLE = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


class OrderedHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no annotations
    """Runs functions one after the other, in order, on one thread. An exception is logged, and does not end the
    thread."""

    _running: bool

    def __init__(self) -> None:
        super().__init__()
        self._work: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.callback_queue = self.completion_queue = self._work
        self._worker: threading.Thread | None = None
        self.reach_wait_s: float | None = None
        # at most this long for a TCP connection, even if kazoo would wait longer

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        """Return a connected socket within `timeout` or `reach_wait_s` seconds, whichever is shorter. Else raise
        OSError."""
        wait_s = timeout if self.reach_wait_s is None else min(timeout, self.reach_wait_s)
        try:
            return super().create_connection(*args, timeout=wait_s, **kwargs)
        except Exception as error:
            _close_left(error.__traceback__)
            raise

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        """Start a daemon thread."""
        name = f"zkcoord-zk-{func.__name__.strip('_')}"
        thread = threading.Thread(target=func, name=name, args=args, kwargs=kwargs, daemon=True)
        thread.start()
        return thread

    def start(self) -> None:
        """Start the worker. It does nothing if the worker runs."""
        with self._state_change:
            if self._running:
                return
            self._running = True
            self._worker = self.spawn(self._run)

    def stop(self) -> None:
        """Run the queued work, then end the worker. The worker itself may call it; then it returns at once."""
        self.finish()
        worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join()

    def finish(self) -> None:
        """Have the worker end after the queued work. Returns at once."""
        with self._state_change:
            if not self._running:
                return
            self._running = False
            self._work.put(None)

    def join(self, timeout_ms: int) -> bool:
        """Wait for the worker's end. True if it ended in time, never ran, or is the caller."""
        worker = self._worker
        if worker is None or worker is threading.current_thread():
            return True
        worker.join(timeout_ms / 1000)
        return not worker.is_alive()

    def submit(self, work: Callable[[], Any]) -> None:
        """Run `work` after everything that was put before it. Never blocks."""
        self._work.put(work)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _errors: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait as `select.select` does, with `timeout` in seconds. A closed socket raises OSError (a broken
        connection)."""
        wanted: dict[int, int] = {}
        for sockets, mask in ((readers, select.POLLIN | select.POLLPRI), (writers, select.POLLOUT)):
            for sock in sockets:
                fd = sock if isinstance(sock, int) else sock.fileno()
                if fd < 0:
                    raise OSError(errno.EBADF, "the socket was closed")
                wanted[fd] = wanted.get(fd, 0) | mask
        poller = select.poll()
        for fd, mask in wanted.items():
            poller.register(fd, mask)
        ready = dict(poller.poll(None if timeout is None else math.ceil(max(timeout, 0) * 1000)))
        return _those(readers, ready, _READABLE), _those(writers, ready, _WRITABLE), []

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:
                _LOG.exception("a callback of the ZooKeeper client failed")
            del work  # so that it is not kept alive while idle


def _close_left(trace: TracebackType | None) -> None:
    """Close the socket that kazoo leaves open where a connection with TLS does not come about."""
    for frame, _ in traceback.walk_tb(trace):
        if isinstance(left := frame.f_locals.get("conn"), socket.socket):
            left.close()


def _those(sockets: Sequence[Any], ready: dict[int, int], mask: int) -> list[Any]:
    return [s for s in sockets if ready.get(s if isinstance(s, int) else s.fileno(), 0) & mask]
