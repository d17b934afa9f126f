"""Runs the page's server until it is told to stop. `zkcoord page` calls it; a coordinator runs that as its child."""

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
from zkcoord.page.actions import Actions
from zkcoord.page.app import Page, make_app
from zkcoord.page.guard import Gate
from zkcoord.page.reading import Reader
from zkcoord.shell.zk.blocking import Tree
from zkcoord.signals import stopping

CONNECTIONS_MAX = 200
KEEP_ALIVE_SECONDS = 30
REQUEST_SECONDS = 10
"""A client that sends its request more slowly is not answered: it would keep one of the connections."""
END_SECONDS = 1
NICE = 10
"""The coordinator beside which the page runs goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served, and where from. `kafka` None: nobody said where Kafka is."""

    address: str
    open_tree: Callable[[], Tree]
    kafka: Callable[[], AbstractContextManager[KafkaClient]] | None
    timelines: Sequence[str] = ()
    token: str | None = None
    names: frozenset[str] = frozenset()
    prefix: str = ""  # of all paths, where a proxy has more than this page


def serve(served: Served, listening: socket.socket, *, beside: bool, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, or (`beside` a coordinator) until standard input ends, as it does with that."""
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
    """Ends a connection whose next request is not there in time. The head of a request is limited (64 KiB) by h11."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        super().connection_made(transport)
        self._late = self.loop.call_later(REQUEST_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        """A part of a request, or all of it."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if self._late is not None and answering:
            self._late.cancel()
            self._late = None
        elif self._late is None and not answering:
            self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the program, which ends with exit code 0 when it is told to."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Put no handlers up."""
        yield

    def end(self) -> None:
        """End soon. Any thread."""
        self.should_exit = True


def app_of(served: Served, reader: Reader) -> ASGIApp:
    """The application: views, and actions where there is a token."""
    gate = Gate(served.token)
    page = Page(reader, actions=gate.open, prefix=served.prefix)
    kafka = served.kafka or _no_kafka
    return make_app(page, served.names, Actions(page, gate, served.open_tree, kafka).routes())


def listen(address: tuple[str, int]) -> socket.socket:
    """Listen there; UsageError when nobody can."""
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
    """The coordinator's end of the pipe is closed when it ends, however that happens."""
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    server.end()
