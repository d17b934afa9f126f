"""Recognises a Kafka broker whose address was given as ZooKeeper's.

A broker does not answer a request for a session, or ends the connection. So does a ZooKeeper server that is not ready,
or has too many clients. So this module sends a request that only a broker answers.
"""

from __future__ import annotations

import socket
import struct

ANSWER_SECONDS = 0.5
NUMBER = 0x7A6B636F
"""The number of the request. A broker repeats it in its answer, after the answer's length."""
API_VERSIONS = struct.pack("!ihhih", 10, 18, 0, NUMBER, -1)
"""Length, kind and version of the request, its number, no client id. For a ZooKeeper server it is a truncated request
for a session: the server ends the connection."""


def is_broker(host: str, port: int) -> bool:
    """True if a broker answers there. (A broker that requires TLS, or a login before anything else, is not
    recognised.)"""
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as sock:
            sock.sendall(API_VERSIONS)
            with sock.makefile("rb") as answer:
                return answer.read(8)[4:] == struct.pack("!i", NUMBER)
    except OSError:
        return False
