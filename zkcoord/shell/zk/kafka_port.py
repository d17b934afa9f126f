"""Recognises a broker of Kafka whose address was given as ZooKeeper's.

It does not answer who asks for a session, or ends the connection. So does a ZooKeeper server that is not ready, or has
too many clients: so the question is asked that only a broker answers.
"""

from __future__ import annotations

import socket
import struct

ANSWER_SECONDS = 0.5
NUMBER = 0x7A6B636F
"""Of the question, which a broker repeats in its answer: behind the answer's length."""
API_VERSIONS = struct.pack("!ihhih", 10, 18, 0, NUMBER, -1)
"""Length, kind and version of the question, its number, no client id. To a ZooKeeper server it is a request for a
session that is cut off: it ends the connection."""


def is_broker(host: str, port: int) -> bool:
    """True if a broker answers there. (One that wants TLS, or a login before all else, is not recognised.)"""
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as sock:
            sock.sendall(API_VERSIONS)
            with sock.makefile("rb") as answer:
                return answer.read(8)[4:] == struct.pack("!i", NUMBER)
    except OSError:
        return False
