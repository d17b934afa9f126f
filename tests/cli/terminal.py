"""A program in a terminal of a given size; its screen can be waited for, keys can be pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable

import pyte
import pytest

from tests.cli.program import PATIENCE_SECONDS, foreground

UP, DOWN, ENTER, ESCAPE, TAB = "\x1b[A", "\x1b[B", "\r", "\x1b", "\t"


class Terminal:
    """`zkcoord` with these arguments, in a terminal of its own."""

    def __init__(self, *arguments: str, width: int = 100, height: int = 20, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zkcoord_command", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=_own_size() | {"TERM": "linux", "LC_ALL": "C.UTF-8"} | environment,
            start_new_session=True,
            preexec_fn=foreground,
        )
        os.close(slave)
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the program has ended
                data = b""
            with self._changed:
                if data:
                    self._stream.feed(data)
                self._changed.notify_all()
            if not data:
                return

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def lines(self) -> list[str]:
        """What stands on the screen now."""
        with self._changed:
            return [line.rstrip() for line in self.screen.display]

    def until(self, shown: Callable[[list[str]], object]) -> list[str]:
        """Wait until the screen is so; fails with the screen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not shown(found := [line.rstrip() for line in self.screen.display]):
                if not self._changed.wait(deadline - time.monotonic()):
                    pytest.fail("it is not shown:\n" + "\n".join(found))
            return found

    def until_closed(self) -> None:
        """Wait until all that the program has printed is on the screen."""
        self._thread.join(PATIENCE_SECONDS)

    def colours(self) -> set[str]:
        """The colours of what stands on the screen."""
        with self._changed:
            return {cell.fg for row in self.screen.buffer.values() for cell in row.values()}

    def close(self) -> None:
        """Kill what is left of it."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        self._thread.join(PATIENCE_SECONDS)
        os.close(self._master)


def _own_size() -> dict[str, str]:
    """Return this program's environment without the size of its own terminal."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
