"""Runs the page beside a coordinator, as a process of its own: what it reads and renders takes no time of the loop's.

This file is imported by programs without the extra packages of the page.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from zkcoord.errors import UsageError
from zkcoord.logs import emit

SOCKET = "ZKCOORD_PAGE_SOCKET"
"""The environment variable that tells the page which of its file descriptors listens: it runs beside a coordinator."""
PACKAGES = ("starlette", "uvicorn", "jinja2")
TURN_SECONDS = 0.1
PAUSE_SECONDS = (1.0, 60.0)
"""Before a page that has ended is started again; twice as long each time."""
END_SECONDS = 5.0


def check_packages() -> None:
    """UsageError without the packages that the page needs."""
    if not all(map(find_spec, PACKAGES)):
        raise UsageError("the page needs extra packages: pip install 'zkcoord[web]'")


class PageBeside:
    """Keeps the page's process running. `arguments` are those of `zkcoord page`; `metrics_port` is known once the
    coordinator runs."""

    def __init__(
        self, listening: socket.socket, arguments: Sequence[str], metrics_port: Callable[[], int | None]
    ) -> None:
        self._listening, self._arguments, self._port = listening, list(arguments), metrics_port
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="zkcoord-page", daemon=True)

    def start(self) -> None:
        """Begin, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the page's process: its standard input ends."""
        self._ended.set()
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        pause = PAUSE_SECONDS[0]
        while not self._ended.is_set():
            port = self._port()
            if port is None:
                self._ended.wait(TURN_SECONDS)
                continue
            code = self._until_ended(port)
            if not self._ended.is_set():
                emit("page_ended", exit_code=code, again_in_ms=int(pause * 1000), level="warning")
            self._ended.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS[1])

    def _until_ended(self, port: int) -> int:
        fd = self._listening.fileno()
        command = [sys.executable, "-m", "zkcoord_command", "page", *self._arguments]
        command += ["--from", f"127.0.0.1:{port}"]
        # a session of its own: Ctrl-C in the terminal is meant for the coordinator, which ends the page
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[fd],
            env={**_others(os.environ), SOCKET: str(fd)},
            start_new_session=True,
        )
        while not self._ended.is_set() and process.poll() is None:
            self._ended.wait(TURN_SECONDS)
        if process.stdin is not None:
            process.stdin.close()
        try:
            return process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _others(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without zkcoord's settings: the coordinator's page is what its own options say, and no token
    for `zkcoord page` makes it another one."""
    return {name: value for name, value in environment.items() if not name.startswith("ZKCOORD_")}


@contextmanager
def page_beside(page: PageBeside | None) -> Iterator[None]:
    """The page runs within the block; None: there is none."""
    if page is None:
        yield
        return
    page.start()
    try:
        yield
    finally:
        page.stop()
