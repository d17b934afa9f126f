"""Threads that send their requests themselves, beside the connection's thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.shell.zk_world import DEADLINE_S, Recorder
from zkcoord.shell.ports import CommitDone, Link, Outcome, ReadDone, StoreInput
from zkcoord.shell.zk import connection
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper

THREADS, AT_ONCE, BREAKS = 6, 4, 8  # threads, requests of each without an answer, broken connections
ROOM = 7  # bytes for which a socket has room


@pytest.fixture
def zk(chroot: str) -> Iterator[Recorder]:
    """A session in the test's own chroot."""
    session = Recorder(chroot)
    session.linked(Link.CONNECTED)
    yield session
    session.store.close()


class Watched:
    """A socket that tells which threads sent. `sends` take the place of its first sends."""

    def __init__(self, inner: Any, sends: list[Callable[[Any, bytes], int]]) -> None:
        self._inner, self._sends = inner, sends
        self.threads: list[str] = []

    def send(self, data: bytes) -> int:
        self.threads.append(threading.current_thread().name)
        return self._sends.pop(0)(self._inner, data) if self._sends else int(self._inner.send(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def watched(zk: Recorder, *sends: Callable[[Any, bytes], int]) -> Watched:
    """Put such a socket in the place of the session's own, once the connection's thread has nothing to do. There are no
    heartbeats, with which the rest of a request might go."""
    own, idle = zk.store.session._connection, threading.Event()
    select = own.handler.select

    def waiting(*arguments: Any) -> Any:
        idle.set()
        return select(*arguments)

    own.handler.select = waiting
    own._send_ping = lambda _wait_s: None
    zk.store.session.wake()
    assert idle.wait(DEADLINE_S)
    own._socket = sender = Watched(own._socket, list(sends))
    return sender


def without_room(_inner: Any, _data: bytes) -> int:
    raise BlockingIOError


def with_little_room(inner: Any, data: bytes) -> int:
    return int(inner.send(data[:ROOM]))


def broken(_inner: Any, _data: bytes) -> int:
    raise OSError("the connection is broken")


def test_a_thread_with_a_request_sends_it_and_wakes_nobody(zk: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = watched(zk)
    monkeypatch.setattr(zk.store.session, "_write_wakeup", lambda: pytest.fail("the connection's thread is woken"))
    assert zk.ask(Read("/"))
    assert sender.threads == [threading.current_thread().name]


@pytest.mark.parametrize("first", [without_room, with_little_room, broken])
@pytest.mark.parametrize("requests", [1, 3])
def test_what_a_thread_cannot_send_the_connections_thread_sends_before_all_else(
    zk: Recorder, first: Callable[[Any, bytes], int], requests: int
) -> None:
    zk.commit(CreateNode("/n"))
    sender = watched(zk, first)
    tokens = [zk.token() for _ in range(requests)]
    for token in tokens:
        zk.store.commit(token, Transaction(writes=(CreateNode("/n", sequential=True),)))
    answers = [zk.answer(token) for token in tokens]
    assert [answer.outcome for answer in answers] == [Outcome.COMMITTED] * requests
    made = [answer.made for answer in answers]
    assert made == sorted(made)
    assert sender.threads[:2] == [threading.current_thread().name, "zkcoord-zk-zk_loop"]
    assert zk.links() == [Link.CONNECTED]


def test_no_thread_sends_before_the_rest_of_an_earlier_request(zk: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = watched(zk, with_little_room)
    tokens = [zk.token(), zk.token()]
    with monkeypatch.context() as patch:
        patch.setattr(zk.store.session, "wake", lambda: None)
        zk.store.commit(tokens[0], Transaction(writes=(CreateNode("/a"),)))
    zk.store.commit(tokens[1], Transaction(writes=(CreateNode("/a/b"),)))
    assert [zk.answer(token).outcome for token in tokens] == [Outcome.COMMITTED] * 2
    assert sender.threads == [threading.current_thread().name, "zkcoord-zk-zk_loop"]


def test_what_was_left_of_a_broken_connection_is_not_sent_on_the_next(zk: Recorder) -> None:
    def with_little_room_at_the_end(inner: Any, data: bytes) -> int:
        sent = with_little_room(inner, data)
        inner.shutdown(socket.SHUT_RDWR)
        return sent

    watched(zk, with_little_room_at_the_end)
    token = zk.token()
    zk.store.commit(token, Transaction(writes=(CreateNode("/n"),)))
    assert zk.answer(token).outcome is Outcome.UNKNOWN
    zk.linked(Link.CONNECTED, 2)
    assert zk.ask(Read("/"))
    assert zk.links() == [Link.CONNECTED, Link.SUSPENDED, Link.CONNECTED]
    assert not zk.store.session.last_trouble


def test_a_request_waits_for_the_one_that_another_thread_is_sending(zk: Recorder) -> None:
    sending, go = threading.Event(), threading.Event()

    def slow(inner: Any, data: bytes) -> int:
        sending.set()
        assert go.wait(DEADLINE_S)
        return int(inner.send(data))

    sender = watched(zk, slow)
    tokens = [zk.token(), zk.token()]
    above, below = (Transaction(writes=(CreateNode(path),)) for path in ("/a", "/a/b"))
    thread = threading.Thread(target=zk.store.commit, args=(tokens[0], above))
    thread.start()
    assert sending.wait(DEADLINE_S)
    zk.store.commit(tokens[1], below)
    threading.Event().wait(0.1)  # for the connection's thread, which might send it
    assert len(sender.threads) == 1
    go.set()
    thread.join(DEADLINE_S)
    assert [zk.answer(token).outcome for token in tokens] == [Outcome.COMMITTED] * 2
    assert zk.links() == [Link.CONNECTED]


def test_of_many_requests_the_connections_thread_makes_packets(zk: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = watched(zk)
    monkeypatch.setattr(connection, "AWAITED_MAX", 0)
    assert zk.ask(Read("/"))
    assert sender.threads == ["zkcoord-zk-zk_loop"]


def test_each_request_of_many_threads_has_one_answer_while_connections_break(zk: Recorder) -> None:
    lock, over = threading.Lock(), threading.Event()
    tokens: dict[int, str] = {}

    def ask(name: str) -> None:
        for number in count():
            with lock:
                token = zk.token()
                tokens[token] = f"/{name}-{number}"
            if number % 2:
                zk.store.commit(token, Transaction(writes=(CreateNode(tokens[token]),)))
            else:
                zk.store.read(token, [Read(tokens[token])])
            if number % AT_ONCE == 0:
                zk.answer(token)
                if over.is_set():
                    return

    threads = [threading.Thread(target=ask, args=(f"t{number}",)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for number in range(BREAKS):
        many = len(tokens) + 10 * THREADS
        zk.wait(lambda _, many=many: len(tokens) > many)
        zk.store.session.drop()
        zk.linked(Link.CONNECTED, number + 2)
    over.set()
    for thread in threads:
        thread.join(DEADLINE_S)

    def answered(seen: list[StoreInput]) -> list[ReadDone | CommitDone]:
        found = [item for item in seen if isinstance(item, (ReadDone, CommitDone))]
        return found if len(found) >= len(tokens) else []

    found = zk.wait(answered)
    assert sorted(item.token for item in found) == sorted(tokens)
    reads = [item for item in found if isinstance(item, ReadDone) and item.nodes]
    assert reads
    assert zk.links().count(Link.CONNECTED) == BREAKS + 1  # no server has refused what it was sent
    assert all(node.path == tokens[item.token] for item in reads for node in item.nodes or ())
