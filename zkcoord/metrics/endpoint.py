"""`/metrics`, `/healthz`, `/readyz` and `/handovers` over HTTP: read-only, one server for each address of a process.

`/healthz` fails when a restart would help: a loop has ended, or hangs in one step. `/readyz` fails while the program
cannot do its work, for any reason. Both answer with one line for each coordinator and consumer in the process.
"""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from zkcoord.metrics import names
from zkcoord.metrics.address import nobody_can_listen, parse_address
from zkcoord.metrics.families import Instruments, LookedUp
from zkcoord.metrics.names import Sample
from zkcoord.settings import version

REQUEST_SECONDS = 10
"""s that a client has to send its request. A slower client gets no answer."""

REQUESTS_MAX = 100
"""The number of requests that are answered at the same time."""

DIGITS_MAX = 9
"""Digits of a number in a request. No group has more hand-overs, and Python converts such a number quickly."""

Problem = Callable[[], str | None]
"""Returns the present problem; None if there is none."""


@dataclass(frozen=True, slots=True)
class Part:
    """One coordinator or consumer of this process."""

    name: str
    sick: Problem  # a problem that a restart would solve
    busy: Problem  # why it cannot do its work now
    handovers: Callable[[str, int | None], Iterable[Mapping[str, Any]] | None] = lambda group, last: None
    samples: Callable[[], Iterable[Sample]] = lambda: ()  # its metrics, looked up at each request


class Endpoint:
    """The server of one address. It listens from the first `add` to the last `remove`. Its counters are kept when it
    does not listen."""

    _known: ClassVar[dict[tuple[str, int], Endpoint]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self, address: tuple[str, int], request_seconds: float = REQUEST_SECONDS, requests_max: int = REQUESTS_MAX
    ) -> None:
        self._address, self._parts = address, list[Part]()
        self._request_seconds, self._requests_max = request_seconds, requests_max
        self._server: ThreadingHTTPServer | None = None
        self._registry = registry = CollectorRegistry()
        for each in (ProcessCollector, PlatformCollector, GCCollector):
            each(registry=registry)
        self.instruments = Instruments(registry)
        self.instruments.make(names.ALL)
        self.looked_up = LookedUp()
        self.looked_up.sources.append(lambda: [(names.BUILD, (version(),), 1)])
        registry.register(self.looked_up)

    @classmethod
    def at(cls, address: str) -> Endpoint:
        """Return the process's endpoint for this address. UsageError as `parse_address` raises it."""
        key = parse_address(address)
        with cls._lock:
            if key[1] == 0:  # port 0 means any free port: each call makes an endpoint of its own
                return cls(key)
            if key not in cls._known:
                cls._known[key] = cls(key)
            return cls._known[key]

    @property
    def port(self) -> int | None:
        """The port on which it listens; None while it does not listen."""
        server = self._server
        return None if server is None else int(server.server_address[1])

    def add(self, part: Part) -> None:
        """Show a coordinator or consumer that begins. UsageError if the address cannot be listened on."""
        with self._lock:
            if self._server is None:
                self._server = self._listen()
            self._parts.append(part)
            self.looked_up.sources.append(part.samples)

    def remove(self, part: Part) -> None:
        """Remove a coordinator or consumer that has ended. Without any the endpoint stops listening."""
        with self._lock:
            self._parts.remove(part)
            self.looked_up.sources.remove(part.samples)
            if self._parts or self._server is None:
                return
            server, self._server = self._server, None
        server.shutdown()
        server.server_close()

    def _listen(self) -> ThreadingHTTPServer:
        handler = type("Handler", (_Handler,), {"of": self, "timeout": self._request_seconds})
        host, port = self._address
        try:
            server = (_Server6 if ":" in host else _Server)((host, port), handler, self._requests_max)
        except OSError as error:
            raise nobody_can_listen(self._address, "metrics", error) from error
        threading.Thread(target=server.serve_forever, name="zkcoord-metrics", daemon=True).start()
        return server

    # the pages

    def metrics(self, accept: str) -> tuple[int, str, bytes]:
        """Return all samples, in the format that the client accepts."""
        encode, content_type = choose_encoder(accept)
        return 200, content_type, encode(self._registry)

    def health(self, question: Callable[[Part], str | None]) -> tuple[int, str, bytes]:
        """Return one line for each part; the status is 503 if any part has a problem, and without any part."""
        said = [(part.name, question(part)) for part in list(self._parts)]
        lines = [f"{name}: {'ok' if what is None else what}\n" for name, what in said]
        status = 503 if not said or any(what is not None for _, what in said) else 200
        return status, "text/plain; charset=utf-8", "".join(lines or ["nothing runs here yet\n"]).encode()

    def handovers(self, group: str, last: int | None) -> tuple[int, str, bytes]:
        """Return the last `last` hand-overs of a group (None: all that are kept), one JSON object a line."""
        for part in list(self._parts):
            found = part.handovers(group, last)
            if found is not None:
                lines = "".join(json.dumps(each) + "\n" for each in found)
                return 200, "application/x-ndjson", lines.encode()
        return 404, "text/plain; charset=utf-8", b"no coordinator here serves such a group\n"


class _Server(ThreadingHTTPServer):
    """Answers each request on a thread. The number of threads is limited, since the coordinator runs in this
    process."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler], requests_max: int) -> None:
        super().__init__(address, handler)
        self._free = threading.BoundedSemaphore(requests_max)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a new thread. If there are too many requests, close this connection."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing when a client closes its connection in the middle of an answer."""


class _Server6(_Server):
    """The same on an IPv6 address."""

    address_family = socket.AF_INET6


class _Request(io.RawIOBase):
    """Reads a client's request for so many seconds at most. A timeout of the socket alone would begin again with each
    byte."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds, self._end = connection, seconds, time.monotonic() + seconds

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come, or wait for it. TimeoutError once the time for the request is over."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._seconds)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with the pages of its endpoint (`of`)."""

    of: Endpoint
    timeout: ClassVar[float] = REQUEST_SECONDS  # for the request, and for the answer
    server_version = "zkcoord"
    sys_version = ""

    def setup(self) -> None:
        """Set a deadline for reading the whole request."""
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection, self.timeout))

    def do_GET(self) -> None:
        """Answer one request."""
        status, content_type, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> tuple[int, str, bytes]:
        asked = urlsplit(self.path)
        if asked.path == "/metrics":
            return self.of.metrics(self.headers.get("Accept", ""))
        if asked.path == "/healthz":
            return self.of.health(lambda part: part.sick())
        if asked.path == "/readyz":
            return self.of.health(lambda part: part.sick() or part.busy())
        if asked.path == "/handovers":
            query = parse_qs(asked.query)
            last = query.get("last", [""])[0]
            number = int(last) if last.isascii() and last.isdigit() and len(last) <= DIGITS_MAX else None
            return self.of.handovers(query.get("group", [""])[0], number)
        return 404, "text/plain; charset=utf-8", b"here are /metrics, /healthz, /readyz and /handovers?group=G\n"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since monitoring sends a request every few seconds."""
