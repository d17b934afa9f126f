"""A running `zkcoord`, and what the tests of the command line share."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import IO

import pytest
from click.testing import Result

from tests.cli.printed import check_printed

PATIENCE_SECONDS = 120.0  # only what fails takes so long
Run = Callable[..., Result]
Spawn = Callable[..., "Program"]


class Program:
    """A running `zkcoord`; its output can be waited for. It is read up to `lines_max` lines of each stream."""

    def __init__(self, *arguments: str, lines_max: int | None = None) -> None:
        self._arguments = arguments
        command = [sys.executable, "-m", "zkcoord_command", *arguments]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=foreground,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        )
        self._lines: dict[str, queue.SimpleQueue[str | None]] = {}
        self._threads: list[threading.Thread] = []
        for name, stream in (("stdout", self.process.stdout), ("stderr", self.process.stderr)):
            assert stream is not None
            self._lines[name] = queue.SimpleQueue()
            thread = threading.Thread(target=self._copy, args=(stream, self._lines[name], lines_max), daemon=True)
            self._threads.append(thread)
            thread.start()

    def line(self, stream: str = "stdout", *, having: str = "") -> str:
        """The next line that has this text; fails at the stream's end or after the deadline."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        seen: list[str] = []
        while True:
            try:
                line = self._lines[stream].get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"waited too long for {having!r} after {seen}")
            if line is None:
                pytest.fail(f"{stream} ended without {having!r}: {seen}")
            self._check(stream, line)
            if having in line:
                return line
            seen.append(line)

    def rest(self, stream: str = "stdout") -> list[str]:
        """All further lines until the stream's end."""
        lines = []
        while (line := self._lines[stream].get(timeout=PATIENCE_SECONDS)) is not None:
            self._check(stream, line)
            lines.append(line)
        return lines

    def _check(self, stream: str, line: str) -> None:
        """Hold what it prints for programs against its schema."""
        if stream == "stdout":
            check_printed(self._arguments, line)

    def end(self) -> int:
        """The exit code, once it has ended by itself; fails with what its threads do when it does not end."""
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            pytest.fail("\n".join(["it does not end:", *self.rest("stderr")]))

    def close(self) -> None:
        """Kill what is left of it."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    @staticmethod
    def _copy(stream: IO[str], lines: "queue.SimpleQueue[str | None]", lines_max: int | None) -> None:
        with stream:
            for line in islice(stream, lines_max):
                lines.put(line.rstrip("\n"))
        lines.put(None)


def foreground() -> None:
    """The tests themselves may be a shell's background job, whose children ignore SIGINT unless told otherwise."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
