"""A Kafka cluster that has only groups: a broker that answers, and the groups' coordinator, which comes later.

It has the part of Kafka's protocol that librdkafka needs to ask for a group's offsets and members, in old versions,
whose fields have fixed sizes. The coordinator has its port from the beginning, but the port refuses connections until
`come`. The broker that answers is the coordinator of groups whose names begin with HERE.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Self

LOOPBACK = "127.0.0.1"
METADATA, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, API_VERSIONS = 3, 9, 10, 15, 18
OF_GROUPS = {OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS}
SPOKEN = {METADATA: 2, OFFSET_FETCH: 2, FIND_COORDINATOR: 0, DESCRIBE_GROUPS: 0, API_VERSIONS: 0}
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNSUPPORTED_VERSION = 14, 15, 16, 35
TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND = 29, 30, 69
HERE = "here"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class CoordinatorAway:
    """The cluster. A context manager: it runs while the block runs."""

    def __init__(self, cluster_id: str = "cluster") -> None:
        self._cluster_id = cluster_id
        self._come = False
        self.error = 0  # the error in the coordinator's answers about a group
        self.breaks = False  # the coordinator ends the connection when it is asked for a group
        self.asked: Counter[tuple[int, str]] = Counter()  # (API key, group) -> number of requests
        self._broker, self._coordinator = socket.socket(), socket.socket()
        for each in (self._broker, self._coordinator):
            each.bind((LOOPBACK, 0))
        self._open: list[socket.socket] = []
        self._accepting: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listen(self._broker)
        return self

    def __exit__(self, *_: object) -> None:
        self._end([self._broker, self._coordinator])
        for thread in self._accepting:
            thread.join()
        self._end(self._open)

    def _end(self, sockets: list[socket.socket]) -> None:
        for each in sockets:
            with suppress(OSError):  # it was never connected, or is not any more
                each.shutdown(socket.SHUT_RDWR)  # a thread that waits for it wakes up
            each.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker that answers."""
        return f"{LOOPBACK}:{self._broker.getsockname()[1]}"

    def come(self) -> None:
        """Let the coordinator accept connections from now on; the other broker then names it."""
        self._come = True
        self._listen(self._coordinator)

    def _listen(self, listener: socket.socket) -> None:
        listener.listen()
        self._accepting.append(threading.Thread(target=self._accept, args=(listener,), daemon=True))
        self._accepting[-1].start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was closed
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as requests, suppress(OSError):  # the client has closed the connection
            while len(head := requests.read(4)) == 4:
                (size,) = struct.unpack(">i", head)
                if len(request := requests.read(size)) < size:
                    return  # the same, in the middle of a request
                answer = self._answer(request)
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, request: bytes) -> bytes | None:
        key, version, correlation, client = struct.unpack_from(">hhih", request)
        more = request[10 + max(client, 0) :]
        group = more[4:] if key == DESCRIBE_GROUPS else more
        name = group[2 : 2 + struct.unpack_from(">h", group)[0]].decode() if key in OF_GROUPS else ""
        self.asked[key, name] += 1
        if key == DESCRIBE_GROUPS and self.breaks:
            return None
        answers: dict[int, Callable[[], bytes]] = {
            API_VERSIONS: lambda: self._versions(0 if version == 0 else UNSUPPORTED_VERSION),
            METADATA: self._metadata,
            FIND_COORDINATOR: lambda: self._where(name),
            OFFSET_FETCH: lambda: struct.pack(">ih", 0, self.error),
            DESCRIBE_GROUPS: lambda: self._described(name),
        }
        return struct.pack(">i", correlation) + answers[key]()

    def _versions(self, error: int) -> bytes:
        rows = b"".join(struct.pack(">hhh", key, 0, most) for key, most in SPOKEN.items())
        return struct.pack(">hi", error, len(SPOKEN)) + rows

    def _metadata(self) -> bytes:
        there = [self._broker, self._coordinator] if self._come else [self._broker]
        brokers = (
            struct.pack(">i", number) + text(LOOPBACK) + struct.pack(">ih", each.getsockname()[1], -1)
            for number, each in enumerate(there)
        )
        return struct.pack(">i", len(there)) + b"".join(brokers) + text(self._cluster_id) + struct.pack(">ii", 0, 0)

    def _where(self, group: str) -> bytes:
        number, one = (0, self._broker) if group.startswith(HERE) else (1, self._coordinator)
        return struct.pack(">hi", 0, number) + text(LOOPBACK) + struct.pack(">i", one.getsockname()[1])

    def _described(self, group: str) -> bytes:
        """Return the description of a group without members."""
        told = b"".join(map(text, (group, "Empty", "consumer", "")))
        return struct.pack(">ih", 1, self.error) + told + struct.pack(">i", 0)
