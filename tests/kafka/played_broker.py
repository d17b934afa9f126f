"""A broker that a test plays. It has one topic. A request for brokers alone gets an empty answer, as from a real broker
that has just started and does not know any broker yet."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterable
from typing import Self

METADATA, API_VERSIONS = 3, 18
VERSIONS = ((METADATA, 1, 4), (API_VERSIONS, 0, 0))
UNSUPPORTED_VERSION, UNKNOWN_TOPIC = 35, 3
TOPIC, CLUSTER_ID = "clicks", "played"


def _text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def _array(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return struct.pack(">i", len(items)) + b"".join(items)


class _Connection(socketserver.StreamRequestHandler):
    """Answers the requests of a connection in their order."""

    server: PlayedBroker

    def handle(self) -> None:
        """Serve one client until it closes the connection."""
        while len(size := self.rfile.read(4)) == 4:
            request = self.rfile.read(struct.unpack(">i", size)[0])
            api, version, number, client = struct.unpack_from(">hhih", request)
            answer = self._answer(api, version, request[10 + max(0, client) :])
            self.wfile.write(struct.pack(">ii", len(answer) + 4, number) + answer)

    def _answer(self, api: int, version: int, body: bytes) -> bytes:
        if api == API_VERSIONS:
            error = UNSUPPORTED_VERSION if version else 0
            return struct.pack(">h", error) + _array(struct.pack(">hhh", *each) for each in VERSIONS)
        assert api == METADATA
        return self._metadata(version, body)

    def _metadata(self, version: int, body: bytes) -> bytes:
        (count,) = struct.unpack_from(">i", body)
        names, at = [], 4
        for _ in range(count):
            (length,) = struct.unpack_from(">h", body, at)
            names.append(body[at + 2 : at + 2 + length].decode())
            at += 2 + length
        brokers_only = count == 0
        self.server.asked_for_brokers += brokers_only
        port = self.server.server_address[1]
        broker = struct.pack(">i", 0) + _text("127.0.0.1") + struct.pack(">i", port) + _text("rack")
        topics = _array(map(self._topic, [TOPIC] if count < 0 else names))
        return (
            (struct.pack(">i", 0) if version >= 3 else b"")
            + _array([] if brokers_only else [broker])
            + (_text(CLUSTER_ID) if version >= 2 else b"")
            + struct.pack(">i", -1 if brokers_only else 0)
            + topics
        )

    def _topic(self, name: str) -> bytes:
        if name != TOPIC:
            return struct.pack(">h", UNKNOWN_TOPIC) + _text(name) + b"\0" + _array([])
        on_this_one = _array([struct.pack(">i", 0)])
        partition = struct.pack(">hii", 0, 0, 0) + on_this_one + on_this_one
        return struct.pack(">h", 0) + _text(name) + b"\0" + _array([partition])


class PlayedBroker(socketserver.ThreadingTCPServer):
    """A context manager: entering starts it. `asked_for_brokers`: how often it was asked for brokers alone."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.asked_for_brokers = 0

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
