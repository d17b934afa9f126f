"""The threads that run an application's functions, never the loop's thread (F16), and those that commit to Kafka.

Callbacks run on one thread, in order, one at a time. A question (`reset`) changes nothing in the application, and may
take as long as Kafka does. So questions have a thread of their own, and no `lost` waits for an answer (F59). If the
group's offsets are in Kafka, too, its commits have a third thread: a commit that a callback waits for must get through.

The callers limit the queue. A registration has one task, which waits for its answer before it asks again, and a
partition is told `lost` once for each start. While a callback hangs, each lease that ends and each registration adds a
few calls, with no more partitions than commands name (1,000 each). At `member.calls.CALLS_WAITING_MAX` calls the
consumer begins nothing new.

An exception of a callback is its answer. SystemExit and its like (every BaseException that is no Exception) end the
program: they go to `end` first, and are then the call's answer, too.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkcoord.shell.ports import CallDone

Functions = Mapping[str, Callable[[Any], Any]]

ANSWER_WAIT_SECONDS = 1.0  # seconds at a stop, for a question or for Kafka; nobody needs the answer any more


class Worker:
    """Implements the port Callbacks with plain functions, by name."""

    def __init__(
        self,
        callbacks: Functions,
        questions: Functions,
        answer: Callable[[CallDone], None],
        end: Callable[[BaseException], object],
        log: Functions | None = None,
    ) -> None:
        """`end` is called with the SystemExit (or its like) of a function. Later calls are served all the same.

        `log` holds the functions that read and commit the group's offsets in Kafka, if there are any.
        """
        self._answer = answer
        self._callbacks = Line("zkcoord-callbacks", callbacks, answer, end)
        self._questions = Line("zkcoord-questions", questions, answer, end)
        self._log = [Line("zkcoord-offsets", log, answer, end)] if log else []

    def start(self) -> None:
        """Begin to serve calls."""
        for line in (self._callbacks, self._questions, *self._log):
            line.start()

    def call(self, token: int, name: str, argument: Any) -> None:
        """Queue a call. Its CallDone goes to `answer`."""
        line = next((line for line in (self._questions, *self._log) if name in line.functions), self._callbacks)
        line.call(token, name, argument)

    def answer_part(self, name: str, value: Any) -> bool:
        """Give a partial answer to the call `name` that this thread is serving. Returns False if it serves no such
        call."""
        at = self._callbacks.at if self._callbacks.is_this_thread else None
        if at is None or at[1] != name:
            return False
        self._answer(CallDone(at[0], value, part=True))
        return True

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Serve the queued calls, then end the threads. Call it from another thread. It does not wait for a hanging
        callback (its thread is a daemon), nor for a question or a commit without an answer."""
        for line in (self._callbacks, self._questions, *self._log):
            line.end()
        self._callbacks.join(timeout_seconds)
        for line in (self._questions, *self._log):
            line.join(ANSWER_WAIT_SECONDS)


class Line:
    """A thread that serves calls in order. It implements the port Callbacks by itself, too."""

    def __init__(
        self,
        name: str,
        functions: Functions,
        answer: Callable[[CallDone], None],
        end: Callable[[BaseException], object],
    ) -> None:
        self.functions, self._answer, self._end = dict(functions), answer, end
        self.calls: queue.SimpleQueue[tuple[int, str, Any] | None] = queue.SimpleQueue()
        self.at: tuple[int, str] | None = None  # the call that is being served
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def call(self, token: int, name: str, argument: Any) -> None:
        """Queue a call. Its CallDone goes to `answer`."""
        self.calls.put((token, name, argument))

    @property
    def is_this_thread(self) -> bool:
        """True on the thread that serves these calls."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def end(self) -> None:
        """Serve the queued calls, then end."""
        self.calls.put(None)

    def join(self, timeout_seconds: float | None) -> None:
        """Wait for the end."""
        if self._thread.is_alive() and not self.is_this_thread:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            token, name, argument = call
            self.at = token, name
            try:
                done = CallDone(token, self.functions[name](argument))
            except Exception as error:  # anything that an application raises is an answer, and must not end the thread
                done = CallDone(token, None, error)
            except BaseException as error:
                self._end(error)
                done = CallDone(token, None, error)  # no record is read because of this call any more
            self._answer(done)
