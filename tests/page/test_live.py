"""What changes is told to a page that stays open: server-sent events, from a page of its own process' kind."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvicorn

from tests.integration.world import World
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.page.app import STREAMS_MAX, Page, make_app
from zkcoord.page.reading import Reader
from zkcoord.page.serve import Prompt
from zkcoord.shell.zk.blocking import Tree

pytestmark = pytest.mark.zookeeper


@contextmanager
def served(chroot: str, http: type[Prompt] = Prompt) -> Iterator[tuple[int, Page]]:
    """A page on a port of its own; it reads all groups all the time."""
    reader = Reader(lambda: Tree(chroot), chroot, interval_ms=50)
    page = Page(reader, actions=False)
    app = make_app(page, frozenset())
    config = uvicorn.Config(app, http=http, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        reader.start()
        thread.start()
        try:
            wait_until(lambda: server.started, "the page is served")
            yield listening.getsockname()[1], page
        finally:
            server.should_exit = True
            thread.join()
            reader.stop()


class Stream:
    """One open page."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        self._connection.request("GET", path)
        self.answer = self._connection.getresponse()

    def event(self, name: str) -> Any:
        """The next event of this name."""
        deadline, found = time.monotonic() + PATIENCE_SECONDS, self.any()
        while found[0] != name:
            assert time.monotonic() < deadline, f"waited too long for an event {name}"
            found = self.any()
        return found[1]

    def until(self, text: str) -> str:
        """The first body with this text."""
        return self._until(lambda body: text in body, text)

    def until_count(self, text: str, number: int) -> str:
        """The first body that has this text so often."""
        return self._until(lambda body: body.count(text) == number, text)

    def _until(self, holds: Callable[[str], bool], what: str) -> str:
        deadline, name, body = time.monotonic() + PATIENCE_SECONDS, "", ""
        while not (name == "body" and holds(body)):
            assert time.monotonic() < deadline, f"waited too long for {what}, after {body}"
            name, body = self.any()
        return body

    def any(self) -> tuple[str, Any]:
        """The next event; one comes every second."""
        while not (line := self.answer.readline().decode()).startswith("event: "):
            assert line, "the stream has ended"
        return line.removeprefix("event: ").strip(), json.loads(self.answer.readline().decode().removeprefix("data: "))

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def test_an_open_page_is_told_of_what_happens_to_a_group(chroot: str) -> None:
    with World(chroot) as world:
        world.coordinate()
        world.topic("clicks", 4)
        with served(chroot) as (port, _), closing(Stream(port, "/live/")) as groups:
            assert groups.answer.getheader("content-type", "").startswith("text/event-stream")
            groups.until("There is no group")
            member = world.join("g", "clicks")
            body = groups.until("Stable")
            assert "<html" not in body
            with closing(Stream(port, "/live/groups/g?sort=topic")) as group:
                first = group.event("body")
                assert first.count(f"<td>{member.consumer.consumer_id}-0</td>") == 4
                other = world.join("g", "clicks")
                wait_until(lambda: len(other.held()) == 2, "it has its share")
                group.until_count(f"<td>{other.consumer.consumer_id}-0</td>", 2)
                assert group.event("read")["failed"] is None


def test_unchanged_parts_are_not_sent_again_and_closed_pages_are_forgotten(chroot: str) -> None:
    with World(chroot) as world:
        world.coordinate()
        with served(chroot) as (port, page):
            with closing(Stream(port, "/live/")) as stream:
                stream.event("body")
                assert [stream.answer.readline() for _ in range(6)][1::3] == [b"event: read\n"] * 2
                assert page.streams == 1
            wait_until(lambda: page.streams == 0, "it is forgotten")


def test_so_many_pages_are_live_and_no_more(chroot: str) -> None:
    with World(chroot) as world:
        world.coordinate()
        with served(chroot) as (port, page):
            page.streams = STREAMS_MAX
            with closing(Stream(port, "/live/")) as stream:
                assert stream.answer.status == 503
            page.streams = 0


def test_a_page_whose_session_is_over_opens_another_one(chroot: str) -> None:
    with World(chroot) as world:
        world.coordinate()
        with served(chroot) as (_, page):
            wait_until(lambda: page.reader.reading, "it has read")
            former = page.reader._tree._tree
            assert former is not None
            former.close()
            wait_until(lambda: page.reader._tree._tree not in (None, former), "it has opened another one")
            at_ms = time.time_ns() // 1_000_000
            wait_until(lambda: page.reader.reading and page.reader.reading.at_ms > at_ms, "it reads again")
