"""Signal handlers for a while, and afterwards those that were there before: the only place that puts them back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handlers = Mapping[int, Any]
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping(action: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """The first SIGTERM or SIGINT sets the event and calls `action` on its own thread; the second ends the program.

    `action` may take locks.
    """
    asked = threading.Event()

    def handle(_number: int, before: Handlers) -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else handler)
        threading.Thread(target=act, name="zkcoord-stop", daemon=True).start()

    def act() -> None:
        asked.set()
        if action is not None:
            action()

    with at_signals(STOP_SIGNALS, handle):
        yield asked


@contextmanager
def at_signals(numbers: Collection[int], act: Callable[[int, Handlers], None]) -> Iterator[None]:
    """Within it `act(number, handlers before)` is called for these signals; only if this is the main thread.

    It interrupts the main thread anywhere, also while that holds a lock: what needs locks belongs on another thread.
    What is ignored stays ignored (a shell's background job, nohup), but for SIGTERM, which is always meant. A handler
    that is not Python's stays, too: it could not be put back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in numbers}
    before = {
        number: handler
        for number, handler in found.items()
        if handler is not None and (handler is not signal.SIG_IGN or number == signal.SIGTERM)
    }

    def handle(number: int, _frame: FrameType | None) -> None:
        act(number, before)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
