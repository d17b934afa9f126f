"""`/metrics`, `/healthz`, `/readyz` and `/handovers` over HTTP: read-only, one server for each address of a process.

`/healthz` fails when a restart would help: a loop that has ended, or hangs in one step. `/readyz` fails while the
program does not do its work, for whatever reason. Both answer with one line for each program part.
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
"""A client that sends its request more slowly is not answered."""

REQUESTS_MAX = 100
"""So many are answered at a time."""

DIGITS_MAX = 9
"""Of a number in a question: no group has so many hand-overs, and Python converts it at once."""

Problem = Callable[[], str | None]
"""Says what is wrong at present; None: nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One coordinator or consumer of this process."""

    name: str
    sick: Problem  # a restart would help
    busy: Problem  # why it does not do its work now
    handovers: Callable[[str, int | None], Iterable[Mapping[str, Any]] | None] = lambda group, last: None
    samples: Callable[[], Iterable[Sample]] = lambda: ()  # its metrics, looked up when somebody asks


class Endpoint:
    """One address. It listens from the first `add` to the last `remove`; what was counted is kept in between."""

    _known: ClassVar[dict[tuple[str, int], Endpoint]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, address: tuple[str, int]) -> None:
        self._address, self._parts = address, list[Part]()
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
        """Return the process's endpoint of this address. UsageError as of `parse_address`."""
        key = parse_address(address)
        with cls._lock:
            if key[1] == 0:  # any free port: each has its own
                return cls(key)
            if key not in cls._known:
                cls._known[key] = cls(key)
            return cls._known[key]

    @property
    def port(self) -> int | None:
        """Where it listens; None while it does not."""
        server = self._server
        return None if server is None else int(server.server_address[1])

    def add(self, part: Part) -> None:
        """Show a part of the program, which begins. UsageError when nobody can listen at the address."""
        with self._lock:
            if self._server is None:
                self._server = self._listen()
            self._parts.append(part)
            self.looked_up.sources.append(part.samples)

    def remove(self, part: Part) -> None:
        """Show a part of the program no more: it has ended. With the last one the endpoint stops listening."""
        with self._lock:
            self._parts.remove(part)
            self.looked_up.sources.remove(part.samples)
            if self._parts or self._server is None:
                return
            server, self._server = self._server, None
        server.shutdown()
        server.server_close()

    def _listen(self) -> ThreadingHTTPServer:
        handler = type("Handler", (_Handler,), {"of": self})
        host, port = self._address
        try:
            server = (_Server6 if ":" in host else _Server)((host, port), handler)
        except OSError as error:
            raise nobody_can_listen(self._address, "metrics", error) from error
        threading.Thread(target=server.serve_forever, name="zkcoord-metrics", daemon=True).start()
        return server

    # the pages

    def metrics(self, accept: str) -> tuple[int, str, bytes]:
        """All samples, in the format that is asked for."""
        encode, content_type = choose_encoder(accept)
        return 200, content_type, encode(self._registry)

    def health(self, question: Callable[[Part], str | None]) -> tuple[int, str, bytes]:
        """One line for each part; 503 if any of them has a problem."""
        said = [(part.name, question(part)) for part in list(self._parts)]
        lines = [f"{name}: {'ok' if what is None else what}\n" for name, what in said]
        status = 503 if not said or any(what is not None for _, what in said) else 200
        return status, "text/plain; charset=utf-8", "".join(lines or ["nothing runs here yet\n"]).encode()

    def handovers(self, group: str, last: int | None) -> tuple[int, str, bytes]:
        """The last hand-overs of a group (None: all that are kept), one JSON object a line."""
        for part in list(self._parts):
            found = part.handovers(group, last)
            if found is not None:
                lines = "".join(json.dumps(each) + "\n" for each in found)
                return 200, "application/x-ndjson", lines.encode()
        return 404, "text/plain; charset=utf-8", b"no coordinator here serves such a group\n"


class _Server(ThreadingHTTPServer):
    """A thread for each request, of which there are not too many: it is the coordinator's process."""

    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to answer, on a thread of its own. One too many is hung up on."""
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
        """Say nothing of a client that went away in the middle of an answer."""


class _Server6(_Server):
    """The same on an IPv6 address."""

    address_family = socket.AF_INET6


class _Request(io.RawIOBase):
    """What a client sends, until `REQUEST_SECONDS` are over. A timeout of the socket begins anew with each byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._end = connection, time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, or wait for it. TimeoutError when it is late."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(REQUEST_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; knows nothing of its own."""

    of: Endpoint
    timeout = REQUEST_SECONDS  # for the answer
    server_version = "zkcoord"
    sys_version = ""

    def setup(self) -> None:
        """Read the request with a deadline for all of it."""
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection))

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
        """Say nothing: monitoring asks every few seconds."""
