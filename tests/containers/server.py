"""A ZooKeeper in a container whose port outlives its restarts; published on the loopback only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from zkcoord.embedded.server import LOOPBACK, free_ports
from zkcoord.embedded.zookeeper import four_letters
from zkcoord.errors import UnavailableError

CLIENT_PORT = 2181
TICK_MS = 500
SERVES_DEADLINE_S = 60.0  # a quiet machine needs two seconds
TURN_S = 0.05
STOP_S = 10
CONFIGURATION = f"""\
dataDir=/data
clientPort={CLIENT_PORT}
clientPortAddress=0.0.0.0
tickTime={TICK_MS}
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
preAllocSize=256
"""
SETTINGS = {  # what the user has set counts; read when testcontainers is first imported
    "TESTCONTAINERS_RYUK_DISABLED": "true",  # its image would come from a registry; what is started here is removed
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    "TESTCONTAINERS_HOST_OVERRIDE": LOOPBACK,
}


class ContainerZooKeeper:
    """A context manager: entering starts a container and waits until it serves, leaving removes it with its data."""

    def __init__(self, image: str) -> None:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        from testcontainers.core.container import DockerContainer

        self.port = free_ports(1)[0]  # chosen here: one that the engine chooses changes with a restart
        self._container = DockerContainer(image).with_copy_into_container(CONFIGURATION.encode(), "/conf/zoo.cfg")
        published: dict[str, Any] = self._container.ports
        published[f"{CLIENT_PORT}/tcp"] = (LOOPBACK, self.port)

    @property
    def hosts(self) -> str:
        """The connection string."""
        return f"{LOOPBACK}:{self.port}"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Freeze it meanwhile: connections stay open, nothing is answered, the clock goes on."""
        self._container.get_wrapped_container().pause()
        try:
            yield
        finally:
            self._container.get_wrapped_container().unpause()

    def stop(self) -> None:
        """End the server in good order; the container keeps its data."""
        self._container.get_wrapped_container().stop(timeout=STOP_S)

    def start(self) -> None:
        """Start the stopped server again; returns when it serves."""
        self._container.get_wrapped_container().start()
        self.await_ready()

    def await_ready(self) -> None:
        """Wait for its answer: a port is open earlier, and who connects then may hang."""
        deadline = time.monotonic() + SERVES_DEADLINE_S
        while not self._serves():
            if time.monotonic() > deadline:
                said = b"\n".join(self._container.get_logs()).decode(errors="replace")
                raise UnavailableError(f"ZooKeeper does not serve after {SERVES_DEADLINE_S:.0f} s; it said:\n{said}")
            time.sleep(TURN_S)

    def _serves(self) -> bool:
        try:
            return four_letters(self.port, "srvr").startswith("Zookeeper version")
        except UnavailableError:
            return False

    def __enter__(self) -> Self:
        try:
            self._container.start()
            self.await_ready()
        except BaseException:
            self._container.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._container.stop()
