"""Runs the page's server until it is told to stop. `zkcoord page` calls it; a coordinator runs `zkcoord page` as its
child.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.logs import emit
from zkcoord.metrics.address import nobody_can_listen, spelled
from zkcoord.page.actions import BODY_SECONDS, Actions
from zkcoord.page.app import Page, make_app
from zkcoord.page.guard import Gate
from zkcoord.page.reading import Reader
from zkcoord.shell.zk.blocking import Tree
from zkcoord.signals import stopping

CONNECTIONS_MAX = 200
KEEP_ALIVE_SECONDS = 30
REQUEST_SECONDS = 10
"""s that a client has to send its request. A slower client gets no answer, since it would occupy a connection."""
END_SECONDS = 1
NICE = 10
"""The page's niceness beside a coordinator, which has the higher priority so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The settings of the page: its sources, its token, its names. `kafka` None: no address of Kafka was given."""

    address: str
    open_tree: Callable[[], Tree]
    kafka: Callable[[], AbstractContextManager[KafkaClient]] | None
    timelines: Sequence[str] = ()
    token: str | None = None
    names: frozenset[str] = frozenset()
    prefix: str = ""  # of all paths, if a proxy serves more than this page
    body_seconds: float = BODY_SECONDS


def serve(served: Served, listening: socket.socket, *, beside: bool, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. `beside` a coordinator: also until standard input ends, which happens when the
    coordinator ends."""
    if beside:
        os.nice(NICE)
    with ExitStack() as stack:
        reader = _reader(served, stack)
        stack.callback(reader.stop)
        reader.start()
        server = _Server(
            uvicorn.Config(
                app_of(served, reader),
                http=Prompt,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=END_SECONDS,
            )
        )
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        if beside:
            threading.Thread(target=_end_with_input, args=(server,), name="zkcoord-page-end", daemon=True).start()
        host, port = listening.getsockname()[:2]
        emit("page_serves", address=spelled(host, port), actions=served.token is not None)
        ready()
        with stopping(server.end):
            server.run(sockets=[listening])


class Prompt(H11Protocol):
    """Ends a connection if its next request does not come in time. h11 limits the head of a request (64 KiB)."""

    seconds: float = REQUEST_SECONDS
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time for the first request: a client has connected."""
        super().connection_made(transport)
        self._late = self.loop.call_later(self.seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        """Take in data. The time stops while a request is answered, and starts for the next request."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if self._late is not None and answering:
            self._late.cancel()
            self._late = None
        elif self._late is None and not answering:
            self._late = self.loop.call_later(self.seconds, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time: the connection has ended."""
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the program, which then ends with exit code 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    def end(self) -> None:
        """Ask the server to end soon. Any thread may call it."""
        self.should_exit = True


def app_of(served: Served, reader: Reader) -> ASGIApp:
    """Return the application: views, and actions if there is a token."""
    gate = Gate(served.token)
    page = Page(reader, actions=gate.open, prefix=served.prefix)
    kafka = served.kafka or _no_kafka
    return make_app(page, served.names, Actions(page, gate, served.open_tree, kafka, served.body_seconds).routes())


def listen(address: tuple[str, int]) -> socket.socket:
    """Listen at this address; UsageError if that is not possible."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise nobody_can_listen(address, "the page", error) from error


def _reader(served: Served, stack: ExitStack) -> Reader:
    client = None if served.kafka is None else stack.enter_context(served.kafka())
    return Reader(served.open_tree, served.address, client=client, timelines=served.timelines)


def _no_kafka() -> AbstractContextManager[KafkaClient]:
    raise UsageError("the page was not told where Kafka is: start it with --bootstrap-servers")


def _end_with_input(server: _Server) -> None:
    """End the server when standard input ends. It is a pipe from the coordinator, whose end of it closes when the
    coordinator ends in any way."""
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    server.end()
