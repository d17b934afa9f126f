"""The relay between a client and a server: a server that is away, half a frame, a cut during a connect."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.relay import DEADLINE_S, Relay

FRAME = struct.pack("!i", 4) + b"data"


class Straight(Relay):
    """Leads to one port, whose lookup can be held up. It looks into each frame, as its users do."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()
        super().__init__()

    def target_port(self) -> int:
        """Tell that it was asked; return the port once it may."""
        self.asked.set()
        self.goes_on.wait(DEADLINE_S)
        return self._port

    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Every frame has four bytes."""
        struct.unpack("!i", frame)
        return frame


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A port that refuses connections until it listens."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(DEADLINE_S)
        yield made


@pytest.fixture
def relay(server: socket.socket) -> Iterator[Straight]:
    """A relay to this port."""
    with closing(Straight(server.getsockname()[1])) as made:
        yield made


def connected(relay: Relay) -> socket.socket:
    """Return a client's connection."""
    return socket.create_connection(("127.0.0.1", relay.port), timeout=DEADLINE_S)


def accepted(server: socket.socket) -> socket.socket:
    """Return the next connection that reaches the server."""
    taken, _ = server.accept()
    taken.settimeout(DEADLINE_S)
    return taken


def rest(sock: socket.socket) -> bytes:
    """Return what comes until the other side ends the connection."""
    came = b""
    with suppress(ConnectionError):
        while more := sock.recv(99):
            came += more
    return came


def is_led_on(relay: Relay, server: socket.socket) -> bool:
    """True if a new connection reaches the server."""
    with connected(relay) as client:
        client.sendall(FRAME)
        client.shutdown(socket.SHUT_WR)
        with accepted(server) as taken:
            return rest(taken) == FRAME


def test_a_connection_ends_if_the_server_is_away_and_the_next_one_is_led_on(
    relay: Straight, server: socket.socket
) -> None:
    with connected(relay) as client:
        assert rest(client) == b""
    server.listen()

    assert is_led_on(relay, server)


def test_of_a_frame_that_its_sender_ends_in_the_middle_nothing_goes_on(relay: Straight, server: socket.socket) -> None:
    server.listen()
    with connected(relay) as client:
        client.sendall(FRAME + FRAME[:-1])
        client.shutdown(socket.SHUT_WR)
        with accepted(server) as taken:
            assert rest(taken) == FRAME


def test_a_cut_also_ends_a_connection_that_is_being_led_on(relay: Straight, server: socket.socket) -> None:
    server.listen()
    relay.goes_on.clear()
    with connected(relay) as client:
        assert relay.asked.wait(DEADLINE_S)
        relay.cut()
        relay.goes_on.set()
        assert rest(client) == b""
    with accepted(server) as taken:
        assert rest(taken) == b""

    assert is_led_on(relay, server)
