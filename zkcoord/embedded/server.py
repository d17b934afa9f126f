"""The base of every embedded server: a data directory and a port that outlive its process."""

import random
import shutil
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from zkcoord.embedded.child import POLL_MS, Child
from zkcoord.errors import UnavailableError, UsageError

LOOPBACK = "127.0.0.1"
NO_SETTINGS: Mapping[str, str] = {}
# Below the systems' range of outgoing ports (Linux: from 32768). Otherwise a client that retries while the server is
# down may be given the server's port as its own, and connect to itself.
PORT_MIN = 20_000
PORT_MAX = 32_000
PORT_TRIES = 200
PORT_RELEASE_MS = 3_000  # the longest time that a killed server may hold its port; usually it takes milliseconds


def port_is_free(port: int) -> bool:
    """True if a server could listen on the loopback's `port` now (connections in TIME_WAIT do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """Return `count` different ports on which nobody listens; UnavailableError if there are not enough."""
    ports: list[int] = []
    candidates = random.SystemRandom().sample(range(PORT_MIN, PORT_MAX), PORT_TRIES)
    for port in candidates:
        if len(ports) == count:
            break
        if port_is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise UnavailableError(f"no free port found between {PORT_MIN} and {PORT_MAX} in {PORT_TRIES} tries")
    return tuple(ports)


class Server(ABC):
    """Base of the embedded servers: start, stop, kill, pause, resume, any number of times on the same data and port.

    A context manager: entering starts the server; leaving stops it, and removes the data directory if it was made here.
    """

    name = "server"
    start_deadline_ms = 60_000  # a quiet machine needs one to five seconds

    def __init__(
        self, data_dir: Path | str | None, port: int | None, settings: Mapping[str, str], jvm_options: Sequence[str]
    ) -> None:
        self._temporary = data_dir is None
        made = Path(tempfile.mkdtemp(prefix=f"zkcoord-{self.name.lower()}-")) if data_dir is None else Path(data_dir)
        self.data_dir = made.absolute()
        self.port = free_ports(1)[0] if port is None else port
        self._settings, self._jvm_options = dict(settings), tuple(jvm_options)
        self._child: Child | None = None

    @abstractmethod
    def _configuration(self) -> dict[str, str]:
        """Return the lines of its configuration; `settings` override them."""

    def configuration(self) -> str:
        """Return the text of its configuration."""
        return "".join(f"{key}={value}\n" for key, value in {**self._configuration(), **self._settings}.items())

    @abstractmethod
    def program(self) -> tuple[str, Sequence[object]]:
        """Return its main class, and its class path."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Write the configuration and return the command line."""

    @abstractmethod
    def ready(self) -> bool:
        """True if the server answers now. Sends it a request, and waits two seconds at most."""

    @property
    def log(self) -> Path:
        """The file with the output of all runs of the server."""
        return self.data_dir / "server.log"

    @property
    def running(self) -> bool:
        """True while its process exists (also a paused one)."""
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int | None:
        """The process id of the server itself while it runs; for measurements."""
        return None if self._child is None else self._child.pid

    def launch(self) -> None:
        """Start the process without waiting for it to serve."""
        if self.running:
            raise UsageError(f"{self.name} runs already on port {self.port}")
        self.kill()  # frees what is left of a run that ended by itself
        end = time.monotonic() + PORT_RELEASE_MS / 1000
        while not port_is_free(self.port):
            time.sleep(POLL_MS / 1000)
            if time.monotonic() > end:
                raise UnavailableError(f"{self.name} cannot start: somebody else listens on port {self.port}")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._child = Child(self.name, self._command(), self.log)
        self._child.start()

    def await_ready(self) -> None:
        """Wait until it serves; UnavailableError with the end of its log if it does not."""
        if self._child is None:
            raise UsageError(f"{self.name} has not been started")
        self._child.await_ready(self.ready, self.start_deadline_ms)

    def start(self) -> Self:
        """Start it and return when it serves. If it does not, it is ended, and UnavailableError has the end of its
        log."""
        self.launch()
        try:
            self.await_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, deadline_ms: int | None = None) -> None:
        """End it in good order (SIGTERM, after the deadline SIGKILL); data and port are kept for the next start."""
        if self._child is not None:
            self._child.stop(deadline_ms)

    def kill(self) -> None:
        """Send SIGKILL, as in a crash; data and port are kept for the next start."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Send SIGSTOP: the server keeps its connections and answers nothing, like a machine that hangs."""
        self._running_child().pause()

    def resume(self) -> None:
        """Send SIGCONT."""
        self._running_child().resume()

    def _running_child(self) -> Child:
        if self._child is None:
            raise UsageError(f"{self.name} has not been started")
        return self._child

    def close(self) -> None:
        """Stop it and remove its data directory if it was made here. It cannot be started again after that."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            if self._temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
