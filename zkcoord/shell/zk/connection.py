"""One session's socket: kazoo's connection handler with its own way of sending and reading.

kazoo looks for a server, does TLS, SASL and heartbeats, and reconnects. This module replaces the traffic of an
established connection: it sends queued requests in one packet, reads everything that has arrived at once, and hands
replies and watch events over in the order of the socket, without kazoo's tables of watches. All of it runs on the
connection's own thread.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from struct import Struct
from typing import Any, Protocol

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    ConnectionLoss,
    MarshallingError,
    SessionClosedRequireSaslError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import CLOSE_RESPONSE, PING_XID, WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.retry import ForceRetryError

from zkcoord.shell.zk import jute
from zkcoord.shell.zk.jute import Event, Op

CONNECTION_LOSS: int = ConnectionLoss.code
MARSHALLING: int = MarshallingError.code
UNIMPLEMENTED: int = UnimplementedError.code
SASL_REQUIRED: int = SessionClosedRequireSaslError.code
PACKET_BYTES = 64 * 1024
"""Bytes of requests that are sent in one write. More would delay the replies."""
CHUNK_BYTES = 64 * 1024
"""Bytes that are read at once. For more the allocator maps and unmaps memory at each read."""
FRAME_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the largest accepted reply: a list of 250,000 topics with the longest names, or of two million with short
ones. (The server has no limit for what it sends.) A larger reply breaks the connection, and a repeated request would
bring it again."""
TOO_LARGE = 1
"""The error code of a request whose reply is too large. ZooKeeper's own codes are not positive."""

CONNECT_WAIT_S = 3.0
"""s that one server may take to answer the request for a session before the next server is tried. It doubles each time,
up to kazoo's own limit, the session timeout divided by the number of servers. A server whose port opens before it
serves never answers."""
REACH_WAIT_S = 1.5
"""s that a TCP connection may take before the next server is tried. It doubles each time that all servers failed. A
machine that is gone does not even refuse, and kazoo would wait for it as long as a session lasts. A lost packet of the
handshake is sent again after one second."""

_HEAD = Struct("!iii")  # length, xid, opcode
_XID_MAX = 2**31 - 1
_EVENTS = {int(event): event for event in Event}
_LOG = logging.getLogger("zkcoord.zk")


class Call:
    """One request on its way. `answer(error code, frame, offset)` is called once; the code 0 is no error.

    A connection that broke before the answer is an error code, too (-4 ConnectionLoss, -112 SessionExpired), with an
    empty frame.
    """

    __slots__ = ("answer", "body", "type")

    def __init__(self, op: Op, body: bytes, answer: Callable[[int, bytes, int], None]) -> None:
        self.type = int(op)
        self.body = body
        self.answer = answer

    def serialize(self) -> bytes:
        """Return the request without its header (kazoo calls it)."""
        return self.body

    def set_exception(self, error: BaseException) -> None:
        """Answer that the connection or the session ended (kazoo calls it)."""
        self.answer(getattr(error, "code", 0) or CONNECTION_LOSS, b"", 0)

    def reply(self, error: int, frame: bytes, offset: int) -> None:
        """Hand over the server's reply. An unreadable reply counts as none."""
        try:
            self.answer(error, frame, offset)
        except Exception:
            _LOG.exception("a reply of ZooKeeper cannot be read (opcode %s)", self.type)
            self.answer(MARSHALLING, b"", 0)


class Owner(Protocol):
    """Receiver of the connection's news (`session.Session`, a KazooClient)."""

    def take_wakeup(self) -> None:
        """The wake-up byte was read."""

    def wake(self) -> None:
        """Cause `_send_request` to be called again."""

    def connected(self, session_timeout_ms: int) -> None:
        """A server accepted the session and its authentication."""

    def fired(self, event: Event, path: str) -> None:
        """A watch fired. `path` is as the server writes it."""

    def together(self) -> AbstractContextManager[None]:
        """Everything that is taken in inside this context arrived together."""

    def hears(self) -> None:
        """Another part of a large reply has arrived."""

    def no_multi_read(self) -> None:
        """The server does not know the multi-read."""

    def trouble(self, what: str) -> None:
        """One server could not be reached, or no name resolved."""

    def unreachable(self) -> None:
        """All servers were tried without success."""

    def ended(self, error: BaseException | None) -> None:
        """The connection's thread is ending."""


class Connection(ConnectionHandler):  # type: ignore[misc] # kazoo has no annotations
    """See the top of the file. `client` is the Owner."""

    client: Any
    _xid: int

    def __init__(self, client: Any, retry: Any, logger: logging.Logger, sasl_options: dict[str, str] | None) -> None:
        super().__init__(client, retry, logger=logger, sasl_options=sasl_options)
        self._inbound = bytearray()
        self.handler.reach_wait_s = REACH_WAIT_S
        self._patience_s = CONNECT_WAIT_S
        self._reached = False
        self._refusals: list[bool] = []  # for each server tried in this round: whether it refused the connection
        self._named = True  # a name of the address has been resolved in this round
        self.refused = False  # True if in the last complete round every server refused, or no name had an address
        self._write_wait_s = CONNECT_WAIT_S  # seconds for which the present server may accept no bytes
        self._last: tuple[str, int] | None = None  # address of the server that accepted the session last

    def drop(self) -> None:
        """Break the TCP connection. Any thread may call it, also during a blocked write."""
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own shutdown would wait for the peer

    # connecting

    def zk_loop(self) -> None:
        """Run kazoo's loop, and tell the owner when it ends."""
        error: BaseException | None = None
        try:
            super().zk_loop()
        except Exception as caught:
            error = caught
        self.client.ended(error)

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = super()._expand_client_hosts()
        if not found:
            self.client.trouble("no host name could be resolved")
        self._named = bool(found)
        return sorted(found, key=lambda server: server[1:] == self._last)  # the server that was just lost comes last

    def _connect_loop(self, retry: Any) -> Any:
        self._reached, self._refusals = False, []
        try:
            return super()._connect_loop(retry)
        except ForceRetryError:  # kazoo's signal to try once more, after a pause
            if not self._reached:
                self.handler.reach_wait_s = (self.handler.reach_wait_s or REACH_WAIT_S) * 2
                self.refused = all(self._refusals) and (bool(self._refusals) or not self._named)
                self.client.unreachable()
            raise

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._inbound.clear()
        try:
            read_timeout, connect_timeout = super()._connect(host, hostip, port)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError("the server does not take this login") from error
        except (ConnectionDropped, KazooTimeoutError) as error:
            self._refusals.append(isinstance(error.__context__, ConnectionRefusedError))
            self.client.trouble(f"{host}:{port}: {error}")
            raise
        session_timeout_ms = round(read_timeout * 3 / 2)  # kazoo keeps only two thirds of it
        self._reached, self.refused, self._patience_s = True, False, CONNECT_WAIT_S
        self._last, self.handler.reach_wait_s = (hostip, port), REACH_WAIT_S
        self._write_wait_s = connect_timeout / 1000
        with contextlib.suppress(OSError, AttributeError):  # Linux only
            # Requests count as heartbeats for kazoo, so a busy client would never notice a link that swallows
            # everything.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(read_timeout))
        self.client.connected(session_timeout_ms)
        return read_timeout, connect_timeout

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            timeout = min(timeout, self._patience_s)
            self._patience_s *= 2  # until a server answers
        return super()._invoke(timeout, request, xid)

    # traffic

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._read_sock.recv(4096)
        self.client.take_wakeup()
        self.send_queued()

    def send_queued(self) -> None:
        """Send queued requests, at most one packet. It runs on the connection's thread."""
        queue, pending = self.client._queue, self.client._pending
        packet = bytearray()
        while queue and len(packet) < PACKET_BYTES:
            request, call = queue.popleft()
            self._xid = self._xid % _XID_MAX + 1
            # before it is sent: a broken connection answers everything in `pending`
            pending.append((request, call, self._xid))
            body = request.serialize()
            packet += _HEAD.pack(len(body) + 8, self._xid, request.type) + body
        if queue:
            self.client.wake()
        if packet:
            self._write(packet, self._write_wait_s)

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        with self._socket_error_handling():
            try:
                sent = self._socket.send(msg)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
        if sent < len(msg):  # there is no room for it now: kazoo waits until there is
            super()._write(msg[sent:], timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        with self._socket_error_handling():
            while True:
                try:
                    chunk = self._socket.recv(CHUNK_BYTES)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    break
                if not chunk:
                    raise ConnectionDropped("the server closed the connection")
                self._inbound += chunk
                if not (hasattr(self._socket, "pending") and self._socket.pending() > 0):
                    break
        with self.client.together():
            last = self._take_frames()
        if len(self._inbound) >= CHUNK_BYTES:
            self.client.hears()
        return last

    def _take_frames(self) -> Any:
        inbound, start, last = self._inbound, 0, None
        while len(inbound) - start >= jute.INT.size:
            size = jute.INT.unpack_from(inbound, start)[0]
            if size < jute.REPLY.size:
                raise ConnectionDropped(f"the server sent a frame of {size} bytes")
            if size > FRAME_BYTES_MAX:
                self._refuse(size)
                raise ConnectionDropped(f"the server sends a frame of {size} bytes")
            end = start + jute.INT.size + size
            if len(inbound) < end:
                break
            if self._take(bytes(inbound[start + jute.INT.size : end])) == CLOSE_RESPONSE:
                last = CLOSE_RESPONSE
            start = end
        del inbound[:start]
        return last

    def _refuse(self, size: int) -> None:
        """Answer the request whose reply is too large. The requests behind it are told that the connection broke."""
        pending = self.client._pending
        call = pending.popleft()[1] if pending else None
        what = _asked(call)
        _LOG.error("ZooKeeper's answer to %s has %d bytes, more than %d", what, size, FRAME_BYTES_MAX)
        if call is not None:
            call.answer(TOO_LARGE, b"", 0)

    def _take(self, frame: bytes) -> Any:
        xid, zxid, error = jute.REPLY.unpack_from(frame)
        offset = jute.REPLY.size
        if xid == PING_XID:
            self.ping_outstanding.clear()
            return None
        if xid == WATCH_XID:
            kind, _ = jute.EVENT.unpack_from(frame, offset)
            path, _ = jute.read_text(frame, offset + jute.EVENT.size)
            if (event := _EVENTS.get(kind)) is not None:
                self.client.fired(event, path)
            return None
        if error == SASL_REQUIRED:
            raise AuthFailedError("the server takes requests of nobody who has not logged in")
        pending = self.client._pending
        if not pending or pending[0][2] != xid:
            # the one answer that comes before its turn: it is given where the request is received
            if error == UNIMPLEMENTED:
                self.client.no_multi_read()
            raise ConnectionDropped(f"the server answered request {xid}, which is not the next one")
        request, call, _ = pending.popleft()
        if zxid > 0:
            self.client.last_zxid = zxid
        if call is not None:
            call.reply(error, frame, offset)
        return CLOSE_RESPONSE if request.type == Op.CLOSE else None


def _asked(call: Call | None) -> str:
    """Describe for people what a request asked for."""
    if call is not None and call.type in (Op.GET_DATA, Op.GET_CHILDREN):
        what = "data" if call.type == Op.GET_DATA else "children"
        return f"the {what} of {jute.read_text(call.body, 0)[0]}"
    return f"a request of type {call.type}" if call is not None else "nothing"
