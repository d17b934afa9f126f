"""Signals: the first SIGTERM or SIGINT asks a long-running command to stop cleanly, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zkcoord.signals import Handlers, at_signals

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping(action: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """Within it the first signal sets the event and calls `action`, on a thread of its own, since that needs locks."""
    asked = threading.Event()

    def handle(_number: int, before: Handlers) -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else handler)
        threading.Thread(target=act, name="zkcoord-stop", daemon=True).start()

    def act() -> None:
        asked.set()
        if action is not None:
            action()

    with at_signals(SIGNALS, handle):
        yield asked
