"""Waiting for what others do: for a condition, with a deadline; and whether a program listens yet."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from zkcoord.embedded.server import LOOPBACK

PATIENCE_SECONDS = 120.0  # only what fails takes so long
TURN_SECONDS = 0.01


def wait_until(holds: Callable[[], object], what: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as `holds()`; fail after the deadline."""
    deadline = time.monotonic() + patience_seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        threading.Event().wait(TURN_SECONDS)


def listens(port: int) -> bool:
    """Whether somebody takes connections there, on the loopback."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=5).close()
    except OSError:
        return False
    return True
