"""The page's addresses: which view each shows, and its changes live. Reads only; `actions.py` changes groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.page import show
from zkcoord.page.guard import HEADERS, answers_to
from zkcoord.page.reading import Reader, Reading

HERE = Path(__file__).parent
STREAMS_MAX = 50
TURN_SECONDS = 1.0
FIRST_SECONDS = 5.0
"""So long a request waits for the first reading of all groups; then the page says that it is under way."""
NUMBER_DIGITS = 6

View = Callable[[Request], tuple[str, dict[str, Any]]]
"""Returns the name of a template and what it shows."""


class NotReadyError(Exception):
    """No reading of all groups has succeeded yet."""


class Page:
    """Renders views, whole or as the part that changes."""

    def __init__(self, reader: Reader, *, actions: bool, prefix: str = "") -> None:
        self.reader, self._actions, self.prefix = reader, actions, prefix
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=show.shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["segment"] = show.segment
        self._templates.globals["plural"] = lambda number: Markup("" if number == 1 else "s")
        self._templates.globals["root"] = Markup(prefix)
        self.streams = 0

    # what each address shows

    def overview(self, request: Request) -> tuple[str, dict[str, Any]]:
        """All groups."""
        order = _choice(request, "sort", show.ORDERS)
        return "overview.html", {"title": "Groups", **show.overview(self._reading(), order, _number(request, "page"))}

    def group(self, request: Request) -> tuple[str, dict[str, Any]]:
        """One group. While ZooKeeper does not answer, as it was when somebody looked at it last."""
        name = request.path_params["name"]
        reader, reading, stale = self.reader, self.reader.reading, None
        try:
            look = reader.look(name)
        except UnavailableError as error:
            before = reader.last_look(name)
            if before is None:
                raise
            look, stale = before, f"{error}; this is how the group was at {show.moment(before.at_ms)}"
        order = _choice(request, "sort", show.PARTITION_ORDERS)
        findings = reading.findings if reading is not None else ()
        values = show.group(look, findings, reader.lags(name), order, _number(request, "page"))
        found = reader.handovers(name)
        return "group.html", {
            "title": f"Group {name}",
            **values,
            "timeline": show.timeline(name, found),
            "actions": self._actions,
            "stale": stale,
        }

    def coordinators(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Who stands for election, and who serves."""
        reading = self._reading()
        values = {"rows": reading.coordinators, "above": reading.above, "serving": show.serving(reading.above)}
        return "coordinators.html", {
            "title": "Coordinators",
            **values,
            "since": show.moment(reading.above.epoch_since_ms),
        }

    def commands(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Commands outstanding."""
        part = show.part_of(show.commands(self._reading()), _number(request, "page"))
        return "commands.html", {"title": "Commands", **part}

    def problems(self, request: Request) -> tuple[str, dict[str, Any]]:
        """What is wrong, and what to do."""
        part = show.part_of(show.problems(self._reading()), _number(request, "page"))
        return "problems.html", {"title": "Problems", **part}

    def _reading(self) -> Reading:
        if self.reader.reading is None:
            self.reader.first.wait(FIRST_SECONDS)
        if self.reader.reading is None:
            raise NotReadyError
        return self.reader.reading

    # how it is shown

    def body(self, view: View, request: Request) -> tuple[str, str, int]:
        """The part of a view that changes, its title, and the status."""
        try:
            template, values = view(request)
            status = 200
        except NotReadyError:
            template, status = "message.html", 503
            text = self.reader.failed or "The groups are being read for the first time: this takes some seconds."
            values = {"title": "Not read yet", "text": text}
        except ZkcoordError as error:
            status = 503 if isinstance(error, UnavailableError) else 404 if isinstance(error, UsageError) else 500
            template, values = "message.html", {"title": "Nothing to show", "text": str(error)}
        return self.render(template, values), str(values["title"]), status

    def render(self, template: str, values: dict[str, Any]) -> str:
        """A template with these values, all of them escaped."""
        return self._templates.get_template(template).render(values)

    def whole(self, body: str, title: str, *, live: str | None = None) -> str:
        """A whole page around the part that changes; `live`: where its changes are told."""
        return self.render("base.html", {"title": title, "body": Markup(body), "live": live, **self._read()})

    def _read(self) -> dict[str, Any]:
        """When all groups were read last, and why not since then."""
        reading = self.reader.reading
        return {"failed": self.reader.failed, "read": None if reading is None else show.moment(reading.at_ms)}

    def answer(self, view: View) -> Callable[[Request], Response]:
        """The endpoint of a view."""

        def endpoint(request: Request) -> Response:
            body, title, status = self.body(view, request)
            query = f"?{request.url.query}" if request.url.query else ""
            live = f"{self.prefix}/live{request.url.path.removeprefix(self.prefix)}{query}" if status != 404 else None
            return HTMLResponse(self.whole(body, title, live=live), status)

        return endpoint

    def changes(self, view: View) -> Callable[[Request], Any]:
        """The endpoint that tells the changes of a view, as server-sent events."""

        async def endpoint(request: Request) -> Response:
            if self.streams >= STREAMS_MAX:
                return PlainTextResponse(f"{STREAMS_MAX} pages are live already: reload to see more\n", 503)
            return StreamingResponse(self._events(view, request), media_type="text/event-stream")

        return endpoint

    async def _events(self, view: View, request: Request) -> AsyncIterator[str]:
        last = ""
        self.streams += 1
        try:
            while True:
                body, _, _ = await run_in_threadpool(self.body, view, request)
                if body != last:
                    last = body
                    yield _event("body", body)
                yield _event("read", self._read())
                await asyncio.sleep(TURN_SECONDS)
        finally:
            self.streams -= 1

    def routes(self) -> list[Route]:
        """Each view, whole and live."""
        views: tuple[tuple[str, View], ...] = (
            ("/", self.overview),
            ("/groups/{name}", self.group),
            ("/coordinators", self.coordinators),
            ("/commands", self.commands),
            ("/problems", self.problems),
        )
        whole = [Route(path, self.answer(view)) for path, view in views]
        return whole + [Route(f"/live{path}", self.changes(view)) for path, view in views]


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS else 1


def _choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    given = request.query_params.get(name, "")
    return given if given in choices else choices[0]


class Guarded:
    """Stands before everything: refuses names that the page does not answer to, puts its headers on each answer, and
    takes requests below the prefix, whether the proxy left that in the path or not."""

    def __init__(self, app: ASGIApp, names: frozenset[str], prefix: str = "") -> None:
        self._app, self._names, self._prefix = app, names, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if not answers_to(Headers(scope=scope).get("host", ""), self._names):
            text = "the page does not answer to this name: ask by its address, or start it with --http-name NAME\n"
            await PlainTextResponse(text, 421)(scope, receive, with_headers)
            return
        path = scope["path"].removeprefix(self._prefix) if self._is_below(scope["path"]) else scope["path"]
        below = {**scope, "root_path": self._prefix, "path": f"{self._prefix}{path or '/'}"}
        with suppress(ConnectionError):  # who asked has gone
            await self._app(below, receive, with_headers)

    def _is_below(self, path: str) -> bool:
        """False when the proxy has taken the prefix off, or there is none."""
        return path == self._prefix or path.startswith(f"{self._prefix}/")


def make_app(page: Page, names: frozenset[str], more: list[Route] | None = None) -> ASGIApp:
    """All of it: views, files, what goes wrong."""

    def wrong(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = "There is no such page." if status == 404 else "This cannot be asked for here."
        body = page.render("message.html", {"title": "Nothing to show", "text": text})
        return HTMLResponse(page.whole(body, "Nothing to show"), status)

    files = Mount("/static", StaticFiles(directory=HERE / "static"))
    return Guarded(
        Starlette(routes=[*page.routes(), *(more or []), files], exception_handlers={HTTPException: wrong}),
        names,
        page.prefix,
    )
