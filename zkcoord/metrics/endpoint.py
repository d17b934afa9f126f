"""`/metrics`, `/healthz`, `/readyz` and `/handovers` over HTTP: read-only, one server for each address of a process.

`/healthz` fails when a restart would help: a loop that has ended, or hangs in one step. `/readyz` fails while the
program does not do its work, for whatever reason. Both answer with one line for each program part.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from zkcoord.errors import UsageError
from zkcoord.metrics import names
from zkcoord.metrics.address import parse_address
from zkcoord.metrics.families import Instruments, LookedUp
from zkcoord.settings import version

REQUEST_SECONDS = 10
"""Who sends its request more slowly is not answered."""

Problem = Callable[[], str | None]
"""Says what is wrong at present; None: nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One coordinator or consumer of this process."""

    name: str
    sick: Problem  # a restart would help
    busy: Problem  # why it does not do its work now
    handovers: Callable[[str], Iterable[Mapping[str, Any]] | None] = lambda group: None


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
            return cls._known.setdefault(key, cls._known.get(key) or cls(key))

    @property
    def port(self) -> int | None:
        """Where it listens; None while it does not."""
        server = self._server
        return None if server is None else int(server.server_address[1])

    def add(self, part: Part) -> None:
        """A part of the program begins. UsageError when nobody can listen at the address."""
        with self._lock:
            if self._server is None:
                self._server = self._listen()
            self._parts.append(part)

    def remove(self, part: Part) -> None:
        """A part of the program ends. With the last one the endpoint stops listening."""
        with self._lock:
            self._parts.remove(part)
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
            raise UsageError(
                f"nobody can listen on {host}:{port} for metrics ({error}): give another address"
            ) from error
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

    def handovers(self, group: str) -> tuple[int, str, bytes]:
        """The hand-overs of a group, one JSON object a line."""
        for part in list(self._parts):
            found = part.handovers(group)
            if found is not None:
                lines = "".join(json.dumps(each) + "\n" for each in found)
                return 200, "application/x-ndjson", lines.encode()
        return 404, "text/plain; charset=utf-8", b"no coordinator here serves such a group\n"


class _Server(ThreadingHTTPServer):
    """A thread for each request."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of who went away in the middle of an answer."""


class _Server6(_Server):
    """The same on an IPv6 address."""

    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; knows nothing of its own."""

    of: Endpoint
    timeout = REQUEST_SECONDS
    server_version = "zkcoord"
    sys_version = ""

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
            return self.of.handovers(parse_qs(asked.query).get("group", [""])[0])
        return 404, "text/plain; charset=utf-8", b"here are /metrics, /healthz, /readyz and /handovers?group=G\n"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: monitoring asks every few seconds."""
