"""The log lines of a session about a server that cannot be reached, and about one that can be reached again."""

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.shell.zk_world import DEADLINE_S, Proxy, Recorder
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.errors import UnavailableError
from zkcoord.shell.ports import Link
from zkcoord.shell.zk.blocking import Tree
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tree.snapshot import Read

pytestmark = pytest.mark.zookeeper


NOWHERE = "127.0.0.1:1"
REFUSED_WAIT_MS = 200


@pytest.fixture
def proxy(zookeeper: EmbeddedZooKeeper) -> Iterator[Proxy]:
    with Proxy(zookeeper.port) as link:
        yield link


def below(chroot: str, proxy: Proxy) -> str:
    """The test's chroot, by way of the proxy."""
    return f"{proxy.hosts}/{chroot.partition('/')[2]}"


def test_an_absent_server_is_logged_once_and_its_return_is_logged(
    proxy: Proxy, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.down()
    with caplog.at_level(logging.INFO, "zkcoord.zk"):
        zk = Recorder(below(chroot, proxy), session_timeout_ms=60_000)
        try:
            attempts = threading.Event()
            unreachable = zk.store.session.unreachable
            counted: list[None] = []

            def count() -> None:
                counted.append(None)
                unreachable()
                if len(counted) >= 4:
                    attempts.set()

            zk.store.session.unreachable = count
            assert attempts.wait(DEADLINE_S)
            assert zk.seen == []
            proxy.up()
            zk.linked(Link.CONNECTED)
        finally:
            zk.close()

    told = [(record.levelname, record.message) for record in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "NOTICE"]
    assert told[0][1].startswith(f"ZooKeeper cannot be reached at {proxy.hosts} (")
    assert told[1][1] == f"ZooKeeper can be reached again at {proxy.hosts}"


def test_the_session_after_an_expired_one_reports_the_servers_return(
    proxy: Proxy, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = zookeeper_sessions(below(chroot, proxy))
    with caplog.at_level(logging.INFO, "zkcoord.zk"):
        proxy.down()
        first = sessions(lambda item: None)
        told = threading.Event()
        unreachable = first.session.unreachable
        first.session.unreachable = lambda: (unreachable(), told.set())
        assert told.wait(DEADLINE_S)
        first.close()
        proxy.up()
        linked = threading.Event()
        second = sessions(lambda item: linked.set())
        assert linked.wait(DEADLINE_S)
        second.close()
        assert second.join(int(DEADLINE_S * 1000))

    assert caplog.messages[-1] == f"ZooKeeper can be reached again at {proxy.hosts}"


def test_a_first_connection_that_was_not_waited_for_is_not_told(
    zookeeper: EmbeddedZooKeeper, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "zkcoord.zk"):
        zk = Recorder(chroot)
        zk.linked(Link.CONNECTED)
        zk.close()
    assert caplog.messages == []


def test_a_tree_does_not_wait_out_its_deadline_when_nobody_listens_at_any_address() -> None:
    with Tree(f"{NOWHERE},127.0.0.1:2", deadline_ms=60_000, refused_wait_ms=REFUSED_WAIT_MS) as tree:
        wait_until(lambda: tree._store.session.refused, "both refused the first connection")
        for call in (lambda: tree.read([Read("/")]), tree.sync, lambda: tree.session_id):
            with pytest.raises(UnavailableError, match=f"did not answer within {REFUSED_WAIT_MS} ms .*refused"):
                call()


def test_a_tree_does_not_wait_out_its_deadline_for_a_name_without_an_address() -> None:
    with Tree("absent.invalid:2181", deadline_ms=60_000, refused_wait_ms=REFUSED_WAIT_MS) as tree:
        wait_until(lambda: tree._store.session.refused, "the name was looked up")
        with pytest.raises(UnavailableError, match=f"did not answer within {REFUSED_WAIT_MS} ms .*no host name could"):
            tree.read([Read("/")])


def test_a_tree_waits_out_its_deadline_for_a_server_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections, and never answers
        address = f"{NOWHERE},127.0.0.1:{silent.getsockname()[1]}"
        with (
            Tree(address, deadline_ms=900, refused_wait_ms=REFUSED_WAIT_MS) as tree,
            pytest.raises(UnavailableError, match="within 900 ms"),
        ):
            tree.read([Read("/")])


def test_a_tree_waits_out_its_deadline_for_a_server_that_has_served_it(proxy: Proxy, chroot: str) -> None:
    with Tree(below(chroot, proxy), refused_wait_ms=REFUSED_WAIT_MS) as tree:
        assert tree.session_id
        tree._deadline_ms = 1_500
        proxy.down()
        with pytest.raises(UnavailableError, match="within 1500 ms"):
            tree.read([Read("/")])
