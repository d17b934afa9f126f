"""A broker with only metadata: it has as many topics as a large cluster, and no records.

A real broker keeps files and mappings for each partition, and one machine cannot hold those of 100,000. This broker
answers ApiVersions and Metadata as Kafka 4.1 does. Its answers are encoded beforehand, so its time does not count.
"""

from __future__ import annotations

import base64
import itertools
import socketserver
import struct
import threading
import uuid
from collections.abc import Sequence

API_VERSIONS, METADATA = 18, 3
METADATA_VERSION = 12
NO_TAGS = b"\0"


def varint(number: int) -> bytes:
    """Encode an unsigned number as the flexible versions of the protocol write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def text(value: str) -> bytes:
    """Encode a compact string."""
    return varint(len(value) + 1) + value.encode()


def topic_id_of(name: str) -> str:
    """Return the id of this topic, as Kafka writes it."""
    return base64.urlsafe_b64encode(_id(name)).decode().rstrip("=")


def _id(name: str) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes


def topic_answer(name: str, partitions: int) -> bytes:
    """One topic of the answer. Each partition has three replicas."""
    replicas = varint(4) + struct.pack(">iii", 0, 1, 2)
    each = b"".join(
        struct.pack(">hiii", 0, number, 0, 5) + replicas + replicas + varint(1) + NO_TAGS
        for number in range(partitions)
    )
    head = struct.pack(">h", 0) + text(name) + _id(name) + b"\0"
    return head + varint(partitions + 1) + each + struct.pack(">i", -(2**31)) + NO_TAGS


class MetadataServer:
    """Serves on threads of this process until `close`. The first topic may grow."""

    def __init__(self, topics: Sequence[str], partitions: int) -> None:
        self._topics = {name: topic_answer(name, partitions) for name in topics}
        self._all = b"".join(self._topics.values())
        self.requests, self.sent = 0, 0
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                server.serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def grow(self, partitions: int) -> None:
        """Give the first topic this number of partitions from now on; its id stays."""
        name = next(iter(self._topics))
        self._topics[name] = topic_answer(name, partitions)
        self._all = b"".join(self._topics.values())

    def counted(self) -> tuple[int, int]:
        """Return the number of requests for metadata so far, and the bytes of their answers."""
        return self.requests, self.sent

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def serve(self, connection: object) -> None:
        """Answer one client until it closes the connection."""
        stream = connection.makefile("rwb")  # type: ignore[attr-defined]
        while head := stream.read(4):
            request = stream.read(struct.unpack(">i", head)[0])
            key, _, correlation = struct.unpack_from(">hhi", request)
            answer = struct.pack(">i", correlation) + (
                self._versions() if key == API_VERSIONS else self._metadata(request)
            )
            if key == METADATA:
                self.requests, self.sent = self.requests + 1, self.sent + len(answer)
            stream.write(struct.pack(">i", len(answer)) + answer)
            stream.flush()

    def _versions(self) -> bytes:
        keys = ((API_VERSIONS, 0, 3), (METADATA, METADATA_VERSION, METADATA_VERSION))
        rows = b"".join(struct.pack(">hhh", *row) + NO_TAGS for row in keys)
        return struct.pack(">h", 0) + varint(len(keys) + 1) + rows + struct.pack(">i", 0) + NO_TAGS

    def _metadata(self, request: bytes) -> bytes:
        names = asked(request)
        count, topics = len(self._topics), self._all
        if names is not None:
            count, topics = len(names), b"".join(self._topics[name] for name in names)
        host, port = self._server.server_address[:2]
        broker = struct.pack(">i", 0) + text(str(host)) + struct.pack(">i", port) + b"\0" + NO_TAGS
        cluster = varint(2) + broker + text("benchmark-cluster") + struct.pack(">i", 0)
        return NO_TAGS + struct.pack(">i", 0) + cluster + varint(count + 1) + topics + NO_TAGS


def asked(request: bytes) -> list[str] | None:
    """Return the topics that a request for metadata names; None: all topics."""
    at = 8
    (length,) = struct.unpack_from(">h", request, at)
    at += 2 + max(length, 0) + 1  # the client's id, and no tags

    def number() -> int:
        nonlocal at
        value = 0
        for shift in itertools.count(0, 7):
            byte = request[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise AssertionError

    count = number()
    if count == 0:
        return None
    names = []
    for _ in range(count - 1):
        at += 16
        length = number() - 1
        names.append(request[at : at + length].decode())
        at += length + 1
    return names or None
