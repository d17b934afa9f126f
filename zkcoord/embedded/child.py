"""A child process that never outlives this one, not even after SIGKILL; `shim.py` says how. POSIX only.

Only this module starts a server. The shim sends all signals, so no signal can reach another process.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkcoord.errors import UnavailableError, UsageError

SHIM = Path(__file__).with_name("shim.py")
GRACE_MS = 10_000  # a broker needs some seconds to hand over and flush
ANSWER_MS = 10_000  # the shim answers in milliseconds; this is for a machine that swaps
POLL_MS = 20
TAIL_BYTES = 4_096


class Child:
    """One program that can be started and ended any number of times; its output is appended to `log`.

    `listens`: the program reads its standard input, to which `say` writes. Otherwise the standard input is empty.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        grace_ms: int = GRACE_MS,
        listens: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._command = tuple(command)
        self._env = None if env is None else dict(env)
        self._grace_ms = grace_ms
        self._stdin = subprocess.PIPE if listens else subprocess.DEVNULL
        self._shim: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._pid: int | None = None
        self._log_start = 0
        self._lock = threading.RLock()  # any thread may give an order; an order is answered before the next one is sent

    @property
    def running(self) -> bool:
        """True while the started program has not ended (a paused one runs)."""
        return self._shim is not None and self._shim.poll() is None

    @property
    def pid(self) -> int | None:
        """The program's process id while it runs. Only for observation: use the methods to send signals."""
        return self._pid if self.running else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run (128 + n for signal n); None while it runs or before the first."""
        return None if self._shim is None else self._shim.poll()

    def start(self) -> None:
        """Start the program; returns when its process exists, which may not serve yet. UsageError if it runs
        already."""
        if os.name != "posix":
            raise UsageError(f"{self.name} can be started on Linux and macOS only")
        with self._lock:
            if self.running:
                raise UsageError(f"{self.name} runs already (process {self._pid})")
            self._forget()
            self.log.parent.mkdir(parents=True, exist_ok=True)
            ours, theirs = socket.socketpair()
            ours.settimeout(ANSWER_MS / 1000)
            settings = (str(theirs.fileno()), str(os.getpid()), str(self._grace_ms))
            with theirs, self.log.open("ab") as log:
                self._log_start = log.tell()
                self._control = ours
                self._shim = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(SHIM), *settings, *self._command],
                    stdin=self._stdin,
                    stdout=log,
                    stderr=log,
                    env=self._env,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C is for this process, which decides what becomes of its servers
                )
            self._pid = self._read_pid(ours)

    def _read_pid(self, control: socket.socket) -> int:
        line = b""
        with contextlib.suppress(OSError):
            while not line.endswith(b"\n"):
                read = control.recv(32)
                if not read:
                    break
                line += read
        if not line.endswith(b"\n"):
            self._end(0)
            raise UnavailableError(f"{self.name} could not be started: {self._command[0]}\n{self.tail()}")
        return int(line)

    def await_ready(self, ready: Callable[[], bool], deadline_ms: int) -> None:
        """Return when `ready()` holds; else UnavailableError with the end of the log."""
        end = time.monotonic() + deadline_ms / 1000
        while not (ready() and self.running):
            if not self.running:
                raise UnavailableError(
                    f"{self.name} ended with code {self.exit_code} instead of serving; {self._said()}"
                )
            if time.monotonic() > end:
                raise UnavailableError(f"{self.name} does not answer after {deadline_ms} ms; {self._said()}")
            time.sleep(POLL_MS / 1000)

    def _said(self) -> str:
        return f"its log ({self.log}) ends with:\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of what this run has written to its log."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - TAIL_BYTES))
            return log.read().decode(errors="replace").strip() or "(nothing)"

    def stop(self, deadline_ms: int | None = None) -> None:
        """Send SIGTERM, and SIGKILL if the program has not ended by the deadline (default: `grace_ms`)."""
        with self._lock:
            self._tell(b"T")
            self._end(self._grace_ms if deadline_ms is None else deadline_ms)

    def kill(self) -> None:
        """Send SIGKILL; returns when the program is gone."""
        with self._lock:
            self._end(0)

    def pause(self) -> None:
        """Send SIGSTOP; returns when the program is suspended: its connections stay open, and it answers nothing."""
        self._must_tell(b"S")

    def resume(self) -> None:
        """Send SIGCONT."""
        self._must_tell(b"C")

    def say(self, line: str) -> None:
        """Write a line to the program's standard input; UsageError if it does not run or does not listen."""
        with self._lock:
            if self._shim is None or self._shim.stdin is None or not self.running:
                raise UsageError(f"{self.name} does not run, or does not listen")
            try:
                self._shim.stdin.write(f"{line}\n".encode())
                self._shim.stdin.flush()
            except OSError as error:
                raise UsageError(f"{self.name} listens no longer: {error}") from error

    def _must_tell(self, order: bytes) -> None:
        with self._lock:
            if not self._tell(order):
                raise UsageError(f"{self.name} does not run")

    def _tell(self, order: bytes) -> bool:
        """Have the shim carry out `order`; False if the program has ended."""
        if self._control is None or not self.running:
            return False
        try:
            self._control.sendall(order)
            return self._control.recv(1) == order
        except OSError:
            return False

    def _end(self, deadline_ms: int) -> None:
        """Wait for the end, kill what is left after the deadline, and reap."""
        if self._shim is not None:
            try:
                if deadline_ms == 0:
                    self._tell(b"K")
                self._shim.wait((deadline_ms or ANSWER_MS) / 1000)
            except subprocess.TimeoutExpired:
                self._tell(b"K")
                self._reap(self._shim)
        self._forget()

    def _reap(self, shim: "subprocess.Popen[bytes]") -> None:
        try:
            shim.wait(ANSWER_MS / 1000)
        except subprocess.TimeoutExpired:
            shim.kill()  # its death signal takes the program along
            shim.wait()

    def _forget(self) -> None:
        if self._shim is not None and self._shim.stdin is not None:
            with contextlib.suppress(OSError):  # the program ended before it had read a line
                self._shim.stdin.close()
        if self._control is not None:
            self._control.close()
            self._control = None
