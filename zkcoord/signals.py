"""Installs signal handlers for a block, and puts the earlier ones back after it. No other module puts handlers back."""

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
    """Call `act(number, earlier handlers)` at these signals while the block runs. On other threads than the main thread
    do nothing.

    `act` interrupts the main thread anywhere, also while that thread holds a lock. Work that needs locks must therefore
    run on another thread. A signal that is ignored stays ignored (a shell's background job, nohup), except SIGTERM. A
    handler that Python did not install stays, too, since it could not be put back.
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
