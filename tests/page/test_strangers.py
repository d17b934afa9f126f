"""The page among clients that are slow or many, and while ZooKeeper is away."""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.cli.group_tree import World
from tests.page.conftest import TOKEN, Open
from tests.page.test_live import Stream, served
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.errors import UnavailableError
from zkcoord.page import reading
from zkcoord.page.reading import LOOKS_MAX
from zkcoord.page.serve import Prompt
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record

pytestmark = pytest.mark.zookeeper
AWAY = "ZooKeeper is away"


def silent(*_: object) -> Any:
    raise UnavailableError(AWAY)


def ended(connection: socket.socket, every_seconds: float | None) -> bytes:
    """What comes until the other side hangs up, to whom a byte is sent so often."""
    answer = b""
    connection.settimeout(every_seconds or PATIENCE_SECONDS)
    while True:
        try:
            part = connection.recv(4096)
        except TimeoutError:
            assert every_seconds is not None, "nobody hangs up"
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return answer
        except ConnectionError:
            return answer
        else:
            if not part:
                return answer
            answer += part


class Hasty(Prompt):
    """Ends a connection sooner."""

    seconds = 0.3


def test_f190_a_client_that_does_not_ask_in_time_keeps_no_connection(world: World) -> None:
    with served(world.address, Hasty) as (port, _), closing(Stream(port, "/live/")) as open_page:
        for begin, every_seconds in ((b"", None), (b"GET / HTTP/1.1\r\nx: ", 0.05)):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(begin)
                assert ended(connection, every_seconds) == b""
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /static/none HTTP/1.1\r\nhost: localhost\r\n\r\nGET / HTTP/1.1\r\n")
            assert ended(connection, None).startswith(b"HTTP/1.1 404")
        open_page.event("body")
        assert [open_page.event("read")["failed"] for _ in range(2)]


def test_an_action_that_is_sent_too_slowly_is_refused(world: World, open_page: Open) -> None:
    world.settle()
    assert open_page(token=TOKEN, body_seconds=0).post("/groups/g/pause", data={"token": TOKEN}).status_code == 408


def test_f190_all_who_wait_for_a_group_while_zookeeper_is_away_are_told_at_once(
    world: World, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other they would wait for its deadline, and take all threads of the page."""
    world.settle()
    reader, looks, asked, clock = open_page().reader, [], [], reading.mono_ms  # type: ignore[attr-defined]

    def noted() -> int:
        now_ms = clock()
        asked.append(threading.current_thread())  # the reader's own thread asks, too
        return now_ms

    def look(group: str) -> Any:
        looks.append(group)
        wait_until(lambda: set(threads) <= set(asked), "all wait")
        silent()

    failed = []

    def ask() -> None:
        with pytest.raises(UnavailableError, match=AWAY):
            reader.look("g")
        failed.append(1)

    monkeypatch.setattr(reading, "mono_ms", noted)
    monkeypatch.setattr(type(reader._auditor), "look", lambda _, group: look(group))
    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(failed), looks) == (5, ["g"])


def test_while_zookeeper_is_away_the_page_says_of_when_its_groups_are(
    world: World, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    page = open_page()
    reader = page.reader  # type: ignore[attr-defined]
    assert AWAY not in page.get("/groups/g").text
    monkeypatch.setattr(type(reader._auditor), "look", silent)
    monkeypatch.setattr(type(reader._auditor), "read", silent)
    reader._looks["g"] = replace(reader._looks["g"], mono_ms=reader._looks["g"].mono_ms - 3_600_000)
    assert f"{AWAY}; this is how the group was at 2" in page.get("/groups/g").text
    reader.read_again()
    wait_until(lambda: f'role="alert">{AWAY}</p>' in page.get("/").text, "the list says so")
    assert "<td" in page.get("/").text


def test_an_open_page_is_told_that_zookeeper_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settle()
    with served(world.address) as (port, page), closing(Stream(port, "/live/")) as stream:
        assert stream.event("read")["failed"] is None
        monkeypatch.setattr(type(page.reader._auditor), "read", silent)
        wait_until(lambda: page.reader.failed == AWAY, "it knows")
        wait_until(lambda: stream.event("read")["failed"] == AWAY, "it is told")


def test_a_large_group_is_read_for_who_looks_at_it_a_fifth_of_the_time(world: World, open_page: Open) -> None:
    world.settle()
    reader = open_page().reader  # type: ignore[attr-defined]
    look = reader.look("g")
    slow = replace(look, mono_ms=look.mono_ms - 10_000, took_ms=3_600_000)
    reader._looks["g"] = slow
    assert reader.look("g") is slow
    assert reader.look("g", age_ms=0) is not slow


def test_the_memory_of_groups_is_bounded_and_ends_with_them(world: World, open_page: Open) -> None:
    reader = open_page().reader  # type: ignore[attr-defined]
    for n in range(LOOKS_MAX + 5):
        reader._keep(reader._looks, f"g{n}", n)
    assert (len(reader._looks), "g0" in reader._looks) == (LOOKS_MAX, False)
    reader._lags["gone"] = deque([(0, 1)])
    reader.read_again()
    wait_until(lambda: "gone" not in reader._lags, "it is forgotten")


def test_a_plan_is_another_one_after_any_decision_about_the_group(world: World, open_page: Open) -> None:
    world.settle()
    page = open_page(token=TOKEN)
    before = page.get("/groups/g/pause").text
    assert page.get("/groups/g/pause").text == before
    world.put(DRAFT.record("g"), encode_record(DEFAULT_RECORD))
    assert page.get("/groups/g/pause").text != before
