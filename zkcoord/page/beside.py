"""Runs the page beside a coordinator, as a process of its own, so that its work takes no time of the coordinator's
loop.

Programs without the extra packages of the page import this file, too.
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
"""The environment variable with the number of the page's listening file descriptor. It is set if the page runs beside a
coordinator."""
PACKAGES = ("starlette", "uvicorn", "jinja2")
TURN_SECONDS = 0.1
PAUSE_SECONDS = (1.0, 60.0)
"""The pause before a page that has ended is started again: the first, and the longest. It doubles each time."""
END_SECONDS = 5.0


def check_packages() -> None:
    """Raise UsageError unless the packages that the page needs are installed."""
    if not all(map(find_spec, PACKAGES)):
        raise UsageError("the page needs extra packages: pip install 'zkcoord[web]'")


class PageBeside:
    """Keeps the page's process running. `arguments` are those of `zkcoord page`. `metrics_port` returns None until the
    coordinator runs."""

    def __init__(
        self, listening: socket.socket, arguments: Sequence[str], metrics_port: Callable[[], int | None]
    ) -> None:
        self._listening, self._arguments, self._port = listening, list(arguments), metrics_port
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="zkcoord-page", daemon=True)

    def start(self) -> None:
        """Start the thread that runs the page."""
        self._thread.start()

    def stop(self) -> None:
        """End the page's process, by the end of its standard input."""
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
        # a session of its own: Ctrl-C in the terminal ends only the coordinator, which then ends the page
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
    """Return the environment without zkcoord's settings. Only the coordinator's options decide about its page: a token
    that is set for `zkcoord page` must not change it."""
    return {name: value for name, value in environment.items() if not name.startswith("ZKCOORD_")}


@contextmanager
def page_beside(page: PageBeside | None) -> Iterator[None]:
    """Run the page while the block runs; do nothing if `page` is None."""
    if page is None:
        yield
        return
    page.start()
    try:
        yield
    finally:
        page.stop()
