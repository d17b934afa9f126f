"""Actions on groups, for users with the token: the page shows the plan; the user confirms it; then it is carried out.

An action is a POST that has the token in itself. The browser adds nothing that identifies the user (no cookie), so
another site cannot send an action in the user's name. An action writes the same requests as `zkcoord group hold`,
`pause` and so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from zkcoord.clock import mono_ms
from zkcoord.core.words import count
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import KafkaClient
from zkcoord.logs import emit
from zkcoord.offsets.targets import Where
from zkcoord.operating.carrying_out import carry_out, end_standing
from zkcoord.operating.documents import sentence
from zkcoord.operating.requesting import who
from zkcoord.operating.resetting import How, goal_of, reset_group
from zkcoord.page.app import Page
from zkcoord.page.guard import Gate, from_here
from zkcoord.page.plans import ACTIONS, RESET, RESUME, Plan, plan_of, plan_of_reset
from zkcoord.shell.zk.blocking import Tree

BODY_MAX = 16_384
BODY_SECONDS = 10  # that a client has to send a form
TIMEOUT_MS = 60_000
GOALS: tuple[tuple[str, str], ...] = (
    (Where.EARLIEST.value, "the start of each log"),
    (Where.LATEST.value, "the end of each log"),
    (Where.OFFSET.value, "an offset"),
    (Where.DATETIME.value, "the first record of a time"),
    (Where.SHIFT.value, "a shift of what is there"),
)
NUMBERS = (Where.OFFSET, Where.SHIFT)

Form = Mapping[str, str]


class Actions:
    """The routes of actions. `open_tree` opens a ZooKeeper session for one action, `open_kafka` a Kafka client."""

    def __init__(
        self,
        page: Page,
        gate: Gate,
        open_tree: Callable[[], Tree],
        open_kafka: Callable[[], AbstractContextManager[KafkaClient]],
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._page, self._gate, self._tree, self._kafka = page, gate, open_tree, open_kafka
        self._body_seconds = body_seconds

    def routes(self) -> list[Route]:
        """Return the routes: for each action GET shows the plan, and POST carries it out."""
        path = "/groups/{name}/{action}"
        return [Route(path, self.ask, methods=["GET"]), Route(path, self.act, methods=["POST"])]

    def ask(self, request: Request) -> Response:
        """Show the plan, with the form that confirms it."""
        if request.path_params["action"] not in ACTIONS:
            return self._refused(request, 404, "There is no such page.")
        if not self._gate.open:
            return self._refused(request, 403, "This page is read-only: it was started without a token.")
        return self._confirm(request, request.query_params)

    async def act(self, request: Request) -> Response:
        """Carry the action out, if the token is right and the plan is still the one that was shown."""
        if not from_here(request.headers):
            return PlainTextResponse("an action must be asked for by this page itself\n", 403)
        try:
            body = await asyncio.wait_for(_body(request), self._body_seconds)
        except TimeoutError:
            return PlainTextResponse("this comes too slowly\n", 408, {"connection": "close"})
        if len(body) > BODY_MAX:
            return PlainTextResponse("this is too large\n", 413)
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        token = form.pop("token", "") or request.headers.get("authorization", "").removeprefix("Bearer ")
        client = request.client.host if request.client is not None else ""
        refusal = self._gate.refusal(token, client, mono_ms())
        if refusal is not None:
            return await run_in_threadpool(self._refused, request, *refusal)
        return await run_in_threadpool(self._carry_out, request, form, client)

    def _carry_out(self, request: Request, form: Form, client: str) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        if action not in ACTIONS:
            return self._refused(request, 404, "There is no such action.")
        try:
            if self._plan(name, action, form).stamp != form.get("plan"):
                return self._confirm(request, form, 409, "The plan is another one by now: look at it, then confirm it.")
            emit("page_action", group=name, action=action, client=client)
            text = self._done(name, action, form, client)
        except UsageError as error:
            return self._refused(request, 409, str(error))
        except ZkcoordError as error:
            return self._refused(request, 503, str(error))
        self._page.reader.read_again()
        with suppress(ZkcoordError):  # so that the group's page, which the user opens next, shows the result
            self._page.reader.look(name, age_ms=0)
        title = f"{ACTIONS[action].verb} group {name}"
        body = self._page.render("done.html", {"title": title, "name": name, "text": text})
        return HTMLResponse(self._page.whole(body, title))

    def _done(self, name: str, action: str, form: Form, client: str) -> str:
        address = self._page.reader.address
        with self._tree() as tree:
            if action == RESUME:
                stood = end_standing(tree, address, name, TIMEOUT_MS)
                return "It is resumed." if stood else "It was neither held nor paused."
            if action == RESET:
                with self._kafka() as kafka:
                    goal, topics = _goal(form)
                    how = How(dry_run=False, stop_first=True, timeout_ms=TIMEOUT_MS)
                    changed, _ = reset_group(tree, address, kafka, name, goal, topics, how)
                return f"{count(len(changed), 'offset')} {'was' if len(changed) == 1 else 'were'} changed."
            answer = carry_out(tree, address, name, action, TIMEOUT_MS, who=f"{who()} by the page, from {client}")
            return f"The coordinator says: {answer.state}."

    def _plan(self, name: str, action: str, form: Form) -> Plan:
        if action != RESET:
            return plan_of(action, self._page.reader.look(name, age_ms=0).seen.report)
        goal, topics = _goal(form)
        with self._tree() as tree, self._kafka() as kafka:
            how = How(dry_run=True, stop_first=True)
            changed, found = reset_group(tree, self._page.reader.address, kafka, name, goal, topics, how)
        return plan_of_reset([form.get("goal", ""), form.get("value", ""), *topics], changed, found)

    def _confirm(self, request: Request, form: Form, status: int = 200, refused: str | None = None) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        plan = None
        try:
            look = self._page.reader.look(name)
            if action != RESET or form.get("goal"):
                plan = self._plan(name, action, form)
        except UnavailableError as error:
            return self._refused(request, 503, str(error))
        except ZkcoordError as error:
            if action != RESET:
                return self._refused(request, 404, str(error))
            look, status, refused = self._page.reader.look(name), 400, str(error)
        title = f"{ACTIONS[action].verb} group {name}"
        values: dict[str, Any] = {
            "title": title,
            "name": name,
            "action": action,
            "verb": ACTIONS[action].verb,
            "does": ACTIONS[action].does,
            "sentence": sentence(look.above, look.seen.report),
            "refused": refused,
            "goals": GOALS if action == RESET else (),
            "goal": form.get("goal", ""),
            "value": form.get("value", ""),
            "topics": form.get("topics", ""),
            "plan": plan,
        }
        return HTMLResponse(self._page.whole(self._page.render("confirm.html", values), title), status)

    def _refused(self, request: Request, status: int, why: str) -> Response:
        values = {"title": "Nothing was done", "text": why}
        return HTMLResponse(self._page.whole(self._page.render("message.html", values), values["title"]), status)


async def _body(request: Request) -> bytes:
    """Return the body of the request; if it is larger than BODY_MAX, only a beginning that is too large, too."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX:
            break
    return body


def _goal(form: Form) -> tuple[Any, tuple[str, ...]]:
    """Return the goal of a reset, and the topics that it is limited to; UsageError for invalid fields of the form."""
    given, text = form.get("goal", ""), form.get("value", "").strip()
    found = next((where for where in Where if where.value == given and where is not Where.FILE), None)
    if found is None:
        raise UsageError("choose to which offsets")
    value: Any = True
    if found is Where.DATETIME:
        value = text
    elif found in NUMBERS:
        digits = text.removeprefix("-") if found is Where.SHIFT else text
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            raise UsageError(f"{text!r} is no whole number: give the offset, or the shift as N or -N")
        value = int(text)
    return goal_of({found.name.lower(): value}), tuple(form.get("topics", "").split())
