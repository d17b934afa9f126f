"""The page's routes: each shows a view, or sends the changes of a view live. They only read; `actions.py` changes
groups."""

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
"""How long a request waits for the first reading of all groups. After that the page says that the reading goes on."""
NUMBER_DIGITS = 6

View = Callable[[Request], tuple[str, dict[str, Any]]]
"""Returns the name of a template and the values that it shows."""


class NotReadyError(Exception):
    """No reading of all groups has succeeded yet."""


class Page:
    """Renders views: the whole page, or only the part that changes."""

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

    # views

    def overview(self, request: Request) -> tuple[str, dict[str, Any]]:
        """All groups."""
        order = _choice(request, "sort", show.ORDERS)
        return "overview.html", {"title": "Groups", **show.overview(self._reading(), order, _number(request, "page"))}

    def group(self, request: Request) -> tuple[str, dict[str, Any]]:
        """One group. While ZooKeeper does not answer, show the group as it was at its last look."""
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
        """The coordinators that stand for election, and the one that serves."""
        reading = self._reading()
        values = {"rows": reading.coordinators, "above": reading.above, "serving": show.serving(reading.above)}
        return "coordinators.html", {
            "title": "Coordinators",
            **values,
            "since": show.moment(reading.above.epoch_since_ms),
        }

    def commands(self, request: Request) -> tuple[str, dict[str, Any]]:
        """All outstanding commands."""
        part = show.part_of(show.commands(self._reading()), _number(request, "page"))
        return "commands.html", {"title": "Commands", **part}

    def problems(self, request: Request) -> tuple[str, dict[str, Any]]:
        """All problems, each with what to do."""
        part = show.part_of(show.problems(self._reading()), _number(request, "page"))
        return "problems.html", {"title": "Problems", **part}

    def _reading(self) -> Reading:
        if self.reader.reading is None:
            self.reader.first.wait(FIRST_SECONDS)
        if self.reader.reading is None:
            raise NotReadyError
        return self.reader.reading

    # rendering

    def body(self, view: View, request: Request) -> tuple[str, str, int]:
        """Return the part of a view that changes, its title, and the HTTP status."""
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
        """Render a template with these values; all of them are escaped."""
        return self._templates.get_template(template).render(values)

    def whole(self, body: str, title: str, *, live: str | None = None) -> str:
        """Return a whole page around the part that changes. `live`: the path of its server-sent events."""
        return self.render("base.html", {"title": title, "body": Markup(body), "live": live, **self._read()})

    def _read(self) -> dict[str, Any]:
        """Return when all groups were last read, and why reading them has failed since then."""
        reading = self.reader.reading
        return {"failed": self.reader.failed, "read": None if reading is None else show.moment(reading.at_ms)}

    def answer(self, view: View) -> Callable[[Request], Response]:
        """Return the endpoint of a view."""

        def endpoint(request: Request) -> Response:
            body, title, status = self.body(view, request)
            query = f"?{request.url.query}" if request.url.query else ""
            live = f"{self.prefix}/live{request.url.path.removeprefix(self.prefix)}{query}" if status != 404 else None
            return HTMLResponse(self.whole(body, title, live=live), status)

        return endpoint

    def changes(self, view: View) -> Callable[[Request], Any]:
        """Return the endpoint that sends the changes of a view, as server-sent events."""

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
        """Return two routes for each view: the whole page, and its changes."""
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
    """Wraps the whole application. It refuses host names that the page does not answer to, sets HEADERS on each answer,
    and accepts paths with and without the prefix, since a proxy may remove it."""

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
        with suppress(ConnectionError):  # the client has closed the connection
            await self._app(below, receive, with_headers)

    def _is_below(self, path: str) -> bool:
        """True when the path begins with the prefix: the proxy has not removed it."""
        return path == self._prefix or path.startswith(f"{self._prefix}/")


def make_app(page: Page, names: frozenset[str], more: list[Route] | None = None) -> ASGIApp:
    """Make the whole application: views, the routes in `more`, static files, and pages for errors."""

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
