"""The few requests that show whether a Kafka node serves; every version since 0.8 answers them."""

import socket
import struct
from dataclasses import dataclass

from zkcoord.embedded.server import LOOPBACK
from zkcoord.errors import UnavailableError

ASK_TIMEOUT_S = 2.0
NO_CONTROLLER = -1
METADATA_KEY = 3
METADATA_VERSION = 1  # the first that names the controller; brokers before 0.10 know version 0 only
API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A broker's answer: the brokers' ids, the controller's id (-1: none yet), and each `topic-partition` with a
    leader.

    An answer of version 0 names no controller (None).
    """

    brokers: frozenset[int]
    controller: int | None
    led: frozenset[str]


class Answer:
    """Reads the fields of a Kafka response one after the other; IndexError behind the end of the response."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, size: int) -> int:
        """Return the next signed big-endian integer of `size` bytes."""
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        """Return the next string; "" for null."""
        return self._take(max(self.number(2), 0)).decode("utf-8")

    def numbers(self) -> tuple[int, ...]:
        """Return the next array of 32-bit integers."""
        return tuple(self.number(4) for _ in range(self.number(4)))

    def _take(self, size: int) -> bytes:
        part = self._content[self._at : self._at + size]
        if len(part) < size:
            raise IndexError("a Kafka response that is too short")
        self._at += size
        return part


def metadata(port: int, version: int = METADATA_VERSION) -> Metadata:
    """Ask the broker on `port` for its metadata; UnavailableError if it does not answer within two seconds.

    (A Metadata request of that version for all topics. A broker answers with what the controller has sent it.)
    """
    answer = _ask(port, METADATA_KEY, version, struct.pack(">i", -1 if version else 0))
    brokers = []
    for _ in range(answer.number(4)):
        brokers.append(answer.number(4))
        answer.text(), answer.number(4)  # host, port
        if version:
            answer.text()  # rack
    controller = answer.number(4) if version else None
    led = []
    for _ in range(answer.number(4)):
        answer.number(2)
        topic, _internal = answer.text(), answer.number(1 if version else 0)
        for _ in range(answer.number(4)):
            answer.number(2)
            partition, leader = answer.number(4), answer.number(4)
            answer.numbers(), answer.numbers()  # replicas, in sync
            if leader >= 0:
                led.append(f"{topic}-{partition}")
    return Metadata(brokers=frozenset(brokers), controller=controller, led=frozenset(led))


def answers(port: int) -> bool:
    """True if a Kafka node of any role on this port answers an ApiVersions request."""
    try:
        _ask(port, API_VERSIONS_KEY, 0, b"")
    except UnavailableError:
        return False
    return True


def _ask(port: int, key: int, version: int, body: bytes) -> Answer:
    """Return the answer to one request, without its correlation id; UnavailableError if none comes in two seconds."""
    request = struct.pack(">hhih", key, version, 1, -1) + body
    try:
        with socket.create_connection((LOOPBACK, port), timeout=ASK_TIMEOUT_S) as connection:
            connection.settimeout(ASK_TIMEOUT_S)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _read(connection, 4))
            answer = Answer(_read(connection, size))
    except OSError as error:
        raise UnavailableError(f"Kafka on port {port} does not answer: {error}") from error
    answer.number(4)  # the correlation id
    return answer


def _read(connection: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes; OSError if the connection ends before."""
    read = b""
    while len(read) < count:
        part = connection.recv(count - len(read))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        read += part
    return read
