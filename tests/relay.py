"""A listener that leads each connection on to a server. Frames that begin with their length, as those of ZooKeeper and
Kafka do, may be changed, answered or dropped on the way."""

from __future__ import annotations

import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

DEADLINE_S = 120.0  # only a failure takes that long


class Relay(ABC):
    """One listener. While `is_down` is true, it ends each connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.hosts = f"127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._cuts = 0
        self.is_down = False
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @abstractmethod
    def target_port(self) -> int:
        """The port to which a new connection is led."""

    @abstractmethod
    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Return what goes on of a frame (None: nothing). An OSError ends the connection. `up`: the client sent the
        frame."""

    def cut(self) -> None:
        """Break all connections."""
        with self._lock:
            gone, self._open = self._open, []
            self._cuts += 1
        for each in gone:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        """End the relay and its threads."""
        self.is_down = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            self.connections += 1
            cuts = self._cuts
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port()))
            except OSError:  # nobody listens there
                client.close()
                continue
            with self._lock:
                gone = self.is_down or self._cuts > cuts  # meanwhile: the cut did not see this connection
                self._open += [] if gone else [client, server]
            if gone:
                client.close()
                server.close()
                continue
            self._start(self._pump, client, server, True)
            self._start(self._pump, server, client, False)

    def _pump(self, one: socket.socket, other: socket.socket, up: bool) -> None:
        first = True
        with suppress(OSError, ValueError), one.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                (size,) = struct.unpack("!i", head)
                if len(whole := stream.read(size)) < size:
                    break  # the sender ended in the middle of it
                frame = self.through(whole, one, up=up, first=first)
                first = False
                if frame is not None:
                    other.sendall(head + frame)
        for sock in (one, other):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
