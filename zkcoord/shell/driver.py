"""Runs a loop on a thread: takes what waits in the inbox, steps, and sleeps until the next input or moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from zkcoord.shell.clock import MonotonicClock
from zkcoord.shell.inbox import ThreadInbox
from zkcoord.shell.journal.recorder import Pages, Step, make_loop
from zkcoord.shell.ports import Callbacks, Input, Request, StoreFactory, refuse_requests
from zkcoord.shell.role import Events

ENDING_MS = 10_000
"""How long the end of a loop waits for its threads; they are daemons, so a stuck one cannot keep a process alive."""


class Driver:
    """One loop, its inbox and its thread. `events` is where its role reports, past the journal if there is one."""

    def __init__(
        self,
        open_session: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
    ) -> None:
        """`calls`: who answers the role's calls, past the journal as `self.calls`."""
        self.clock = MonotonicClock()
        self.inbox = ThreadInbox(self.clock)
        self.loop, self.events, self._step, self.calls = make_loop(journal, open_session, self.inbox.put, events, calls)
        self.ended = threading.Event()
        self._at_end: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._exit_raised = False

    def put(self, item: Input) -> None:
        """Add an input, from any thread."""
        self.inbox.put(item)

    def at_end(self, action: Callable[[], None]) -> None:
        """Call this on the loop's thread when the loop has ended, for whatever reason."""
        self._at_end.append(action)

    def measured_by(self, around: Callable[[Step], Step]) -> None:
        """Put something around each step of the loop; before it runs."""
        self._step = around(self._step)

    def ask(self, name: str, argument: Any = None) -> Future[None]:
        """Make a request to the role. The future ends with its answer, or with an error when the loop ends first."""
        future: Future[None] = Future()
        self.put(Request(name, argument, future))
        if self.ended.is_set():
            refuse_requests(self.inbox.take(0))
        return future

    def start(self) -> None:
        """Run on an own thread."""
        self._thread.start()

    def run(self) -> None:
        """Run on this thread until the loop has finished."""
        wake_at_ms: int | None = self.clock.now_ms()
        inputs: Sequence[Input] = ()
        try:
            while not self.loop.finished:
                inputs = self.inbox.take(wake_at_ms)
                wake_at_ms = self._step(inputs, self.clock.now_ms())
        except BaseException as error:
            self._give_up(error, inputs)
            raise
        finally:
            self.ended.set()
            refuse_requests(self.inbox.take(0))
            for action in self._at_end:
                action()

    def _give_up(self, error: BaseException, inputs: Sequence[Input]) -> None:
        """A bug ended the loop: tell its role and all waiting callers, then close the session when it may be."""
        self.loop.fail(error, self.clock.now_ms())
        refuse_requests(inputs)
        wake_at_ms: int | None = self.clock.now_ms()
        while not self.loop.finished:
            wake_at_ms = self.loop.step(self.inbox.take(wake_at_ms), self.clock.now_ms())

    def join(self) -> None:
        """Wait for the own thread to end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(ENDING_MS / 1000)

    def raise_exit(self) -> None:
        """Raise once the SystemExit (or its like) by which the application ended the loop."""
        fatal = self.loop.fatal
        if fatal is not None and not isinstance(fatal, Exception) and not self._exit_raised:
            self._exit_raised = True
            raise fatal
