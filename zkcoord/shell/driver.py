"""Runs a loop on a thread: it takes the inputs in the inbox, steps, and sleeps until the next input or the next wake-up
time.

A consumer's steps are short. So they run on the threads on which its inputs arrive: the thread of its store's
connection, and the threads that run its application's functions, after each function. Only one thread steps at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

from zkcoord.shell.clock import MonotonicClock
from zkcoord.shell.inbox import ThreadInbox
from zkcoord.shell.journal.recorder import Pages, Step, make_loop
from zkcoord.shell.ports import Callbacks, CallDone, Input, Request, StoreFactory, refuse_requests
from zkcoord.shell.role import Events

ENDING_MS = 10_000
"""ms for which the end of a loop waits for its threads. They are daemons, so a stuck one cannot keep a process
alive."""


class Driver:
    """One loop, its inbox and its thread. The role reports to `events`, through the journal if there is one."""

    def __init__(
        self,
        open_session: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
        *,
        tells: bool = False,
    ) -> None:
        """`calls` answers the role's calls, which go through `self.calls` and the journal. `tells`: the stores call
        `told`."""
        self.clock = MonotonicClock()
        self.inbox = ThreadInbox(self.clock)
        put = self.inbox.add if tells else self.inbox.put
        self.loop, self.events, self._step, self.calls = make_loop(journal, open_session, put, events, calls)
        self._stepping = threading.Lock()  # held during a step; only the loop's own thread waits for it
        self._runs = False  # True once `run` was called: nobody steps before
        self._wake_at_ms: int | None = None  # when the loop must step again at the latest
        self._waits_ms: int | None = None  # until when the loop's own thread waits
        self._raised: tuple[BaseException, Sequence[Input]] | None = None
        # an error of a step, and the inputs of that step
        self.ended = threading.Event()
        self._at_end: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._exit_raised = False

    def put(self, item: Input) -> None:
        """Add an input, from any thread."""
        self.inbox.put(item)

    def answered(self, done: CallDone) -> None:
        """Take in an answer of the application on the thread that gives it, which has nothing else to do. (After a
        partial answer it goes on working.)"""
        self.inbox.add(done)
        self.told(not done.part)

    def told(self, here: bool) -> None:
        """Take in what a store has put into the inbox. With `here` this thread takes it in, and must have nothing else
        to do: waking another thread costs more than a consumer's step.

        If another thread steps right now, the loop's own thread takes in the rest. That thread takes in everything that
        came before it ran.
        """
        if not here or not self._runs or not self._stepping.acquire(blocking=False):
            self.inbox.wake()
            return
        try:
            inputs = self.inbox.take()
            if inputs and self._raised is None and not self.loop.finished:
                self._advance(inputs)
            if self._raised is not None or self.loop.finished or _earlier(self._wake_at_ms, self._waits_ms):
                self.inbox.wake()
        finally:
            self._stepping.release()

    def _advance(self, inputs: Sequence[Input]) -> None:
        try:
            self._wake_at_ms = self._step(inputs, self.clock.now_ms())
        except BaseException as error:  # the loop's own thread ends with it
            self._raised = error, inputs

    def at_end(self, action: Callable[[], None]) -> None:
        """Call `action` on the loop's thread when the loop has ended, for whatever reason."""
        self._at_end.append(action)

    def measured_by(self, around: Callable[[Step], Step]) -> None:
        """Wrap each step of the loop in `around`. Call it before the loop runs."""
        self._step = around(self._step)

    def ask(self, name: str, argument: Any = None) -> Future[None]:
        """Make a request to the role. The future ends with the answer, or with an error if the loop ends first."""
        future: Future[None] = Future()
        self.put(Request(name, argument, future))
        if self.ended.is_set():
            refuse_requests(self.inbox.take())
        return future

    def start(self) -> None:
        """Run the loop on a thread of its own."""
        self._thread.start()

    def run(self) -> None:
        """Run the loop on this thread until it has finished."""
        self._runs = True
        try:
            self._run()
        finally:
            self.ended.set()
            refuse_requests(self.inbox.take())
            for action in self._at_end:
                action()

    def _run(self) -> None:
        self._waits_ms = self._wake_at_ms = self.clock.now_ms()
        try:
            while not self.loop.finished and self._raised is None:
                self.inbox.wait(self._waits_ms)
                with self._stepping:
                    inputs = self.inbox.take()
                    if inputs or not _earlier(self.clock.now_ms(), self._wake_at_ms):
                        self._advance(inputs)
                    self._waits_ms = self._wake_at_ms
        except BaseException as error:  # the main thread is interrupted
            self._raised = self._raised or (error, ())
        if self._raised is not None:
            with self._stepping:  # for good: nobody steps after this
                self._give_up(*self._raised)

    def _give_up(self, error: BaseException, inputs: Sequence[Input]) -> NoReturn:
        """A bug ended the loop: tell its role and all waiting callers, then close the session when the role allows
        it."""
        self.loop.fail(error, self.clock.now_ms())
        refuse_requests(inputs)
        wake_at_ms: int | None = self.clock.now_ms()
        while not self.loop.finished:
            self.inbox.wait(wake_at_ms)
            wake_at_ms = self.loop.step(self.inbox.take(), self.clock.now_ms())
        raise error

    def join(self) -> None:
        """Wait for the loop's own thread to end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(ENDING_MS / 1000)

    def raise_exit(self) -> None:
        """If the application ended the loop with a SystemExit (or another such error), raise it, once."""
        fatal = self.loop.fatal
        if fatal is not None and not isinstance(fatal, Exception) and not self._exit_raised:
            self._exit_raised = True
            raise fatal


def _earlier(one_ms: int | None, other_ms: int | None) -> bool:
    """True if the first time comes before the second. None is never."""
    return one_ms is not None and (other_ms is None or one_ms < other_ms)
