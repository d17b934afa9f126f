"""Threads of a simulated program that blocks. They are generators that yield what they wait for, one small step at a
time.

A thread yields `Call` (a request to ZooKeeper; the thread continues with the answer), `Sleep` (it continues after that
much time on its process's clock) or `Until` (it continues when a condition holds). All this is deterministic: threads
run in the order in which they were created. An error that a thread does not catch ends only that thread, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A request: `send` is called with the token that the answer will have."""

    send: Callable[[int], None]


class Sleep(NamedTuple):
    """A pause, in ms of the process's clock."""

    duration_ms: int


class Until(NamedTuple):
    """A condition; it is evaluated whenever the process takes a step."""

    holds: Callable[[], bool]


Wait = Call | Sleep | Until
Blocking = Generator[Wait, Any, Any]
"""What a blocking function is here: `result = yield from function()`."""


class Thread:
    """One thread, and the token, time or condition that it waits for."""

    __slots__ = ("body", "condition", "due_ms", "ended", "name", "token")

    def __init__(self, name: str, body: Blocking) -> None:
        self.name, self.body, self.ended = name, body, False
        self.token: int | None = None
        self.due_ms: int | None = 0  # the thread begins at the next step
        self.condition: Callable[[], bool] | None = None


class Threads:
    """All threads of one process. `died` is called with a thread and the error that ended it."""

    def __init__(self, died: Callable[[str, Exception], None]) -> None:
        self._threads: list[Thread] = []
        self._tokens = 0
        self._now_ms = 0
        self._died = died

    def start(self, name: str, body: Blocking) -> None:
        """One more thread."""
        self._threads.append(Thread(name, body))

    def answer(self, token: int, item: Any) -> None:
        """The answer to a call came."""
        for thread in self._threads:
            if thread.token == token:
                self._go_on(thread, item)
                return

    def lose_calls(self) -> None:
        """No answer will come any more: every call is answered with None."""
        for thread in self._threads:
            if thread.token is not None:
                self._go_on(thread, None)

    def run(self, now_ms: int) -> int | None:
        """Run every thread that can run. Returns the time at which the next one is due, or None when only an input
        helps."""
        self._now_ms = now_ms
        went_on = True
        while went_on:
            went_on = False
            for thread in list(self._threads):
                due = thread.due_ms is not None and thread.due_ms <= now_ms
                if due or (thread.condition is not None and thread.condition()):
                    self._go_on(thread, None)
                    went_on = True
        self._threads = [thread for thread in self._threads if not thread.ended]
        return min((thread.due_ms for thread in self._threads if thread.due_ms is not None), default=None)

    def _go_on(self, thread: Thread, item: Any) -> None:
        thread.token = thread.due_ms = thread.condition = None
        try:
            wait = thread.body.send(item)
        except StopIteration:
            thread.ended = True
            return
        except Exception as error:
            thread.ended = True
            self._died(thread.name, error)
            return
        if isinstance(wait, Call):
            self._tokens += 1
            thread.token = self._tokens
            wait.send(self._tokens)
        elif isinstance(wait, Sleep):
            thread.due_ms = self._now_ms + wait.duration_ms
        else:
            thread.condition = wait.holds
