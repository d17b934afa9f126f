"""The handler: one queue, one thread, poll."""

import gc
import logging
import socket
import threading
import warnings

import pytest
from kazoo.protocol.states import Callback

from zkcoord.shell.zk.handler import OrderedHandler


def test_watches_and_replies_run_in_the_order_in_which_they_came() -> None:
    handler, seen, threads = OrderedHandler(), [], set()

    def note(number: int) -> None:
        seen.append(number)
        threads.add(threading.current_thread())

    handler.start()
    for number in range(0, 999, 3):
        handler.dispatch_callback(Callback("watch", note, (number,)))
        result = handler.async_result()
        result.rawlink(lambda _, n=number + 1: note(n))
        result.set(None)
        handler.submit(lambda n=number + 2: note(n))
    handler.stop()

    assert seen == list(range(999))
    assert len(threads) == 1
    assert not any(thread.is_alive() for thread in threads)


def test_a_callback_that_raises_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    handler, seen = OrderedHandler(), []
    handler.start()
    with caplog.at_level(logging.ERROR, "zkcoord.zk"):
        handler.submit(lambda: 1 // 0)
        handler.submit(lambda: seen.append("next"))
        handler.stop()

    assert seen == ["next"]
    assert [record.message for record in caplog.records] == ["a callback of the ZooKeeper client failed"]


def test_the_worker_itself_may_stop_the_handler_and_stopping_twice_is_nothing() -> None:
    handler = OrderedHandler()
    handler.start()
    handler.submit(handler.stop)

    assert handler.join(10_000)
    handler.stop()
    assert not handler.running


def test_select_says_which_sockets_can_be_read_and_which_written() -> None:
    handler = OrderedHandler()
    one, other = socket.socketpair()
    with one, other:
        assert handler.select([one], [], [], 0) == ([], [], [])
        assert handler.select([one], [one], [], 0) == ([], [one], [])
        other.send(b"x")
        assert handler.select([one, other], [], [], 1.0) == ([one], [], [])
        assert handler.select([one.fileno()], [], []) == ([one.fileno()], [], [])
        other.close()
        assert handler.select([one], [], [], None) == ([one], [], [])
    with pytest.raises(OSError, match="closed"):
        handler.select([one], [], [], 0)


@pytest.mark.parametrize("listens", [False, True], ids=["refused", "silent"])
def test_a_tls_connection_that_does_not_come_about_leaves_no_open_socket(listens: bool) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises(OSError):
                OrderedHandler().create_connection(server.getsockname(), timeout=0.5, use_ssl=True, verify_certs=False)
            gc.collect()
    assert [str(each.message) for each in told if "SSLSocket" in str(each.message)] == []
