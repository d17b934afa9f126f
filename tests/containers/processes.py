"""`zkcoord` processes, each in the network namespace of a container of its own, so that it can be cut off alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from tests.containers.ensemble import Box, wait_until
from tests.containers.proof import Log
from zkcoord.clock import mono_ms

Event = Mapping[str, Any]
PATIENCE_S = 60.0
LEAVE_S = 30.0
PROGRAM = [sys.executable, "-m", "zkcoord_command"]
SKEWED = """
import sys, time
ahead_ns, right = int(sys.argv.pop(1)) * 10**9, time.time_ns
time.time_ns = lambda: right() + ahead_ns
from zkcoord.cli.main import main
main()
"""


def now_ms() -> int:
    """The clock of the event logs."""
    return mono_ms()


class Process:
    """A running `zkcoord` whose events are kept; what it prints is not."""

    def __init__(self, name: str, seat: Box, *arguments: str, clock_ahead_s: int = 0) -> None:
        """`clock_ahead_s`: how far its wall clock is ahead of the machine's."""
        self.name, self.seat = name, seat
        self.events: list[Event] = []
        self.noise: list[str] = []
        self.resumed_ms: list[int] = []
        program = [sys.executable, "-c", SKEWED, str(clock_ahead_s)] if clock_ahead_s else PROGRAM
        command = [*program, *arguments, "--log-format", "json", "-vv"]
        self._process = subprocess.Popen(
            ["nsenter", "-t", str(seat.pid), "-n", *command],  # becomes the command: the signals reach it
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def of(self, *names: str, since_ms: int = 0) -> list[Event]:
        """The events of these names."""
        return [e for e in list(self.events) if e["event"] in names and e["mono_ms"] >= since_ms]

    def wait(self, *names: str, since_ms: int = 0) -> Event:
        """The first event of these names since then."""
        wait_until(
            lambda: self.of(*names, since_ms=since_ms) or self._process.poll() is not None,
            f"{names} of {self.name}",
            PATIENCE_S,
            lambda: (self.events[-3:], self.noise[-20:]),
        )
        found = self.of(*names, since_ms=since_ms)
        assert found, f"{self.name} ended with {self._process.poll()}: {self.noise[-20:]}"
        return found[0]

    def held(self) -> set[str]:
        """The partitions that it reads, by its log."""
        held: set[str] = set()
        for event in self.of("fetch_started", "fetch_stopped", "fetch_lost", "session_lost"):
            if event["event"] == "fetch_started":
                held.update(event["partitions"])
            else:
                held.difference_update(event["partitions"])
        return held

    def ids(self) -> list[str]:
        """The names under which it has registered, in order."""
        return [event["consumer"] for event in self.of("registered")]

    def log(self) -> Log:
        """For the proof."""
        return Log(name=self.name, events=list(self.events), resumed_ms=tuple(self.resumed_ms))

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.resumed_ms.append(now_ms())
        self._process.send_signal(signal.SIGCONT)

    def ask_to_leave(self) -> None:
        """SIGTERM."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()

    def left(self) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(LEAVE_S)
        self._thread.join(LEAVE_S)
        return code

    def close(self) -> None:
        """Kill what is left of it."""
        self._process.kill()
        self.left()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.noise.append(line)
