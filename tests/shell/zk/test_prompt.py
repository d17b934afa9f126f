"""A session whose inputs are handled where they arrive, on the connection's thread."""

import queue
import threading

import pytest

from tests.shell.zk_world import DEADLINE_S
from zkcoord.shell.ports import ReadDone, SyncDone
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper


def test_a_prompt_sink_gets_answers_and_events_in_order_on_the_connections_thread(chroot: str) -> None:
    seen: list[tuple[str, str]] = []
    done = threading.Event()

    def sink(item: object) -> None:
        seen.append((type(item).__name__, threading.current_thread().name))
        if len(seen) == 1:
            store.read(1, [Read("/", Kind.CHILDREN, watch=True)])
            store.commit(2, Transaction(writes=(CreateNode("/a"),)))
            store.sync(3)
        if isinstance(item, SyncDone):
            done.set()

    ready = threading.Lock()
    with ready:
        store = zookeeper_sessions(chroot, prompt=True)(lambda item: (ready.acquire(), ready.release(), sink(item)))
    assert done.wait(DEADLINE_S)
    store.close()
    assert store.join(int(DEADLINE_S * 1000))
    assert [name for name, _ in seen] == ["LinkChanged", "ReadDone", "WatchFired", "CommitDone", "SyncDone"]
    assert {thread for _, thread in seen} == {"zkcoord-zk-zk_loop"}


def test_another_threads_request_is_sent_right_after_the_answers_are_taken_in(chroot: str) -> None:
    """The connection's thread is not woken for the request. It would send it only with its next heartbeat, and here
    there is none."""
    linked, answers = threading.Event(), queue.SimpleQueue[ReadDone]()
    sessions = zookeeper_sessions(chroot, prompt=True, session_timeout_ms=10_000)

    def sink(item: object) -> None:
        if isinstance(item, ReadDone):
            answers.put(item)
        else:
            linked.set()

    def told(here: bool) -> None:
        if here and linked.is_set() and not asked:
            asked.append(threading.Thread(target=store.read, args=(2, [Read("/")])))
            asked[0].start()
            asked[0].join()

    asked: list[threading.Thread] = []
    sessions.told = told
    store = sessions(sink)
    store.session._connection._send_ping = lambda _wait_s: None
    assert linked.wait(DEADLINE_S)
    store.read(1, [Read("/")])
    found = [answers.get(timeout=DEADLINE_S) for _ in range(2)]
    assert sorted((answer.token, bool(answer.nodes)) for answer in found) == [(1, True), (2, True)]
    store.close()
