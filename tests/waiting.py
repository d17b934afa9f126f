"""Waiting: for a condition, with a deadline; and a check whether a program already listens."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from zkcoord.embedded.server import LOOPBACK

PATIENCE_SECONDS = 120.0  # only a failure takes that long
TURN_SECONDS = 0.01


def wait_until(holds: Callable[[], object], what: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as `holds()` is true; fail after the deadline."""
    deadline = time.monotonic() + patience_seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        threading.Event().wait(TURN_SECONDS)


def listens(port: int) -> bool:
    """True if a program accepts connections at this port of the loopback."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=5).close()
    except OSError:
        return False
    return True
