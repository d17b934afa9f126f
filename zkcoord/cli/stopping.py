"""Signals: the first SIGTERM or SIGINT asks a long-running command to stop cleanly, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping(action: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """Within it the first signal sets the event and calls `action`, on a thread of its own.

    A handler interrupts the main thread anywhere, also while that holds a lock that `action` needs.
    """
    asked = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if number is signal.SIGTERM else handler)
        threading.Thread(target=act, name="zkcoord-stop", daemon=True).start()

    def act() -> None:
        asked.set()
        if action is not None:
            action()

    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}
    if before[signal.SIGINT] is signal.SIG_IGN:  # a shell's background job: the terminal's Ctrl-C is not for it
        del before[signal.SIGINT]
    for number in before:
        signal.signal(number, handle)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
