"""The session on a real server: connecting, breaking, coming back, expiring, closing."""

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.shell.zk_world import DEADLINE_S, Proxy, Recorder, session
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.shell.ports import CommitDone, Link, Outcome, ReadDone, SyncDone, WatchFired
from zkcoord.shell.zk.blocking import Tree
from zkcoord.shell.zk.handler import OrderedHandler
from zkcoord.shell.zk.jute import Op
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction

pytestmark = pytest.mark.zookeeper
TIMEOUT_MS = 2_000


@pytest.fixture
def server() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(fsync=False) as own:
        yield own


@pytest.fixture
def proxy(zookeeper: EmbeddedZooKeeper) -> Iterator[Proxy]:
    with Proxy(zookeeper.port) as link:
        yield link


def below(chroot: str, proxy: Proxy) -> str:
    """The test's chroot, by way of the proxy."""
    return f"{proxy.hosts}/{chroot.partition('/')[2]}"


def unread(zk: Recorder) -> list[object]:
    """The answers to requests while there is no link."""
    return [zk.ask(Read("/")), zk.commit(CreateNode("/unsent")).outcome, zk.sync().ok]


def test_connected_tells_the_negotiated_timeout_not_the_wanted_one(server: EmbeddedZooKeeper) -> None:
    for wanted_ms, negotiated_ms in ((4_001, 4_001), (60_000, 10_000), (10, 1_000)):  # at most 20 ticks of 500 ms
        with session(server.hosts, session_timeout_ms=wanted_ms) as zk:
            link = zk.linked(Link.CONNECTED)
            assert (link.session_timeout_ms, link.session_id) == (negotiated_ms, zk.store.session._session_id)


def test_another_session_timeout_than_the_one_asked_for_is_told_once(
    server: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the fix, the session took another timeout without a log line."""

    def told(asked_ms: int) -> list[str]:
        caplog.clear()
        sessions = zookeeper_sessions(server.hosts, session_timeout_ms=asked_ms, prompt=True)
        for _ in range(2):
            linked: queue.SimpleQueue[object] = queue.SimpleQueue()
            store = sessions(linked.put)
            linked.get(timeout=DEADLINE_S)
            store.close()
        return [record.getMessage() for record in caplog.records if record.name == "zkcoord.zk"]

    why = "within its limits (minSessionTimeout, maxSessionTimeout): ask for what it gives, or have them changed"
    assert told(4_000) == []
    assert told(500) == [f"ZooKeeper gives sessions 1000 ms, not the 500 ms that were asked for, {why}"]
    assert told(60_000) == [f"ZooKeeper gives sessions 10000 ms, not the 60000 ms that were asked for, {why}"]


def test_the_session_outlives_its_server_and_its_watches_do_not(server: EmbeddedZooKeeper) -> None:
    with session(server.hosts, session_timeout_ms=10_000) as zk, session(server.hosts) as other:
        zk.commit(CreateNode("/a"), CreateNode("/mine", ephemeral=True))
        zk.ask(Read("/a", watch=True), Read("/", Kind.CHILDREN, watch=True))
        first = zk.linked(Link.CONNECTED)

        server.stop()
        zk.linked(Link.SUSPENDED)
        server.start()
        again = zk.linked(Link.CONNECTED, times=2)
        other.linked(Link.CONNECTED, times=2)
        other.commit(SetNode("/a", b"1", 0), CreateNode("/b"))
        zk.sync()

        assert again == first
        assert zk.links() == [Link.CONNECTED, Link.SUSPENDED, Link.CONNECTED]
        assert not [item for item in zk.seen if isinstance(item, WatchFired)]
        nodes = zk.ask(Read("/a"), Read("/mine"))
        assert nodes is not None
        assert [node.exists for node in nodes] == [True, True]


def test_requests_without_a_link_are_answered_at_once_and_never_sent(proxy: Proxy, chroot: str) -> None:
    proxy.down()
    zk = Recorder(below(chroot, proxy))
    try:
        assert unread(zk) == [None, Outcome.UNKNOWN, False]
        proxy.up()
        zk.linked(Link.CONNECTED)
        proxy.down()
        zk.linked(Link.SUSPENDED)
        assert unread(zk) == [None, Outcome.UNKNOWN, False]
        proxy.up()
        zk.linked(Link.CONNECTED, times=2)
        nodes = zk.ask(Read("/unsent"))
        assert nodes is not None
        assert not nodes[0].exists
    finally:
        zk.close()


def test_requests_of_a_broken_link_are_answered_after_suspended(proxy: Proxy, chroot: str) -> None:
    with session(below(chroot, proxy)) as zk:
        zk.commit(CreateNode("/a"))
        proxy.stall()
        zk.store.commit(10, Transaction(writes=(SetNode("/a", b"1", 0),)))
        zk.store.read(11, [Read("/a"), Read("/a", watch=True)])
        zk.store.read(12, [Read("/a"), Read("/a")])
        zk.store.sync(13)
        start = len(zk.seen)
        zk.store.drop_connection()
        zk.answer(13)

        assert [getattr(item, "link", None) or item for item in zk.seen[start:]] == [
            Link.SUSPENDED,
            CommitDone(10, Outcome.UNKNOWN, reason="ConnectionLoss"),
            ReadDone(11, None),
            ReadDone(12, None),
            SyncDone(13, ok=False),
        ]
        proxy.flow()
        zk.linked(Link.CONNECTED, times=2)


def test_a_link_that_swallows_everything_is_noticed_by_heartbeats(proxy: Proxy, chroot: str) -> None:
    with session(below(chroot, proxy), session_timeout_ms=TIMEOUT_MS) as zk:
        proxy.stall()
        zk.linked(Link.SUSPENDED)
        proxy.flow()


@pytest.mark.parametrize("prompt", [False, True])
def test_an_expired_session_is_lost_once_and_nothing_follows(proxy: Proxy, chroot: str, prompt: bool) -> None:
    with (
        session(chroot) as witness,
        session(below(chroot, proxy), session_timeout_ms=TIMEOUT_MS, prompt=prompt) as zk,
    ):
        zk.commit(CreateNode("/mine", ephemeral=True))
        witness.ask(Read("/mine", watch=True))
        proxy.down()
        zk.linked(Link.SUSPENDED)
        witness.wait(lambda seen: WatchFired("/mine", data=True, children=True) in seen)
        connections = proxy.connections
        proxy.up()

        zk.linked(Link.LOST)
        assert zk.store.join(int(DEADLINE_S * 1000)), "threads are left"
        zk.store.read(91, [Read("/")])
        zk.store.commit(92, Transaction(writes=(CreateNode("/late"),)))
        zk.store.sync(93)
        zk.store.drop_connection()
        zk.store.close()

        assert zk.links() == [Link.CONNECTED, Link.SUSPENDED, Link.LOST]
        assert getattr(zk.seen[-1], "link", None) is Link.LOST
        assert proxy.connections == connections + 1, "another session was opened"
        nodes = witness.ask(Read("/", Kind.CHILDREN))
        assert nodes is not None
        assert nodes[0].children == ()


def test_dropping_the_connection_keeps_the_session(chroot: str) -> None:
    with session(chroot) as zk:
        first = zk.linked(Link.CONNECTED)
        zk.store.drop_connection()
        assert zk.linked(Link.CONNECTED, times=2) == first
        assert zk.links() == [Link.CONNECTED, Link.SUSPENDED, Link.CONNECTED]


def test_the_server_that_was_just_lost_is_tried_last(zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
    """A server that hangs accepts connections, and costs time that the session does not have."""
    path = chroot.partition("/")[2]
    with ExitStack() as stack:
        one, other = stack.enter_context(Proxy(zookeeper.port)), stack.enter_context(Proxy(zookeeper.port))
        zk = stack.enter_context(session(f"{one.hosts},{other.hosts}/{path}"))
        begin = (one.connections, other.connections)
        for times in range(2, 10):
            zk.store.drop_connection()
            zk.linked(Link.CONNECTED, times=times)
        assert (one.connections - begin[0], other.connections - begin[1]) == (4, 4)


def test_a_machine_that_does_not_even_refuse_is_given_up_before_the_session_is() -> None:
    handler = OrderedHandler()
    handler.reach_wait_s = 0.1
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        address = listener.getsockname()
        for _ in range(2):  # nobody accepts these: the kernel drops further requests for connections
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            handler.create_connection(address, timeout=DEADLINE_S * 2)
        assert time.monotonic() - begin < DEADLINE_S


@pytest.mark.parametrize("prompt", [False, True])
def test_closing_executes_what_is_in_flight_and_reports_nothing_more(chroot: str, prompt: bool) -> None:
    threads = set(threading.enumerate())
    with session(chroot, prompt=prompt) as zk:
        for n in range(200):
            zk.store.commit(n, Transaction(writes=(CreateNode(f"/n{n}", ephemeral=n % 2 == 0),)))
        zk.store.close()
        zk.store.close()
        assert zk.store.join(int(DEADLINE_S * 1000))
        assert Link.LOST not in zk.links()
    with Tree(chroot) as tree:
        (node,) = tree.read([Read("/", Kind.CHILDREN)])
    assert set(node.children) == {f"n{n}" for n in range(1, 200, 2)}
    wait_until(lambda: set(threading.enumerate()) <= threads, "all its threads have ended")


def test_the_interpreters_end_closes_what_was_left_open(chroot: str) -> None:
    program = (
        "import sys, threading\n"
        "from zkcoord.shell.ports import CommitDone, LinkChanged\n"
        "from zkcoord.shell.zk.store import zookeeper_sessions\n"
        "from zkcoord.tree.writes import CreateNode, Transaction\n"
        "linked, done = threading.Event(), threading.Event()\n"
        "def sink(item):\n"
        "    (linked if isinstance(item, LinkChanged) else done).set()\n"
        "store = zookeeper_sessions(sys.argv[1], session_timeout_ms=60_000)(sink)\n"
        "assert linked.wait(30)\n"
        "store.commit(1, Transaction(writes=(CreateNode('/mine', ephemeral=True), CreateNode('/ran'))))\n"
        "assert done.wait(30)\n"
    )
    subprocess.run([sys.executable, "-c", program, chroot], check=True, timeout=60, cwd=Path(__file__).parents[3])

    with Tree(chroot) as tree:
        assert tree.read([Read("/", Kind.CHILDREN)])[0].children == ("ran",)


def test_a_session_may_be_closed_from_its_own_thread(chroot: str) -> None:
    done = threading.Event()

    def sink(_: object) -> None:
        store.close()
        done.set()

    ready = threading.Lock()
    with ready:
        store = zookeeper_sessions(chroot)(lambda item: (ready.acquire(), ready.release(), sink(item)))
    assert done.wait(DEADLINE_S)
    assert store.join(int(DEADLINE_S * 1000))


def test_closing_does_not_wait_for_a_server_that_is_away(proxy: Proxy, chroot: str) -> None:
    with session(below(chroot, proxy)) as zk:
        proxy.down()
        zk.linked(Link.SUSPENDED)
        zk.store.close()
        assert zk.store.join(int(DEADLINE_S * 1000))


@pytest.mark.parametrize("prompt", [False, True])
def test_a_chroot_that_does_not_exist_ends_the_session_and_names_it(zookeeper: EmbeddedZooKeeper, prompt: bool) -> None:
    zk = Recorder(f"{zookeeper.hosts}/not/there", prompt=prompt)
    zk.linked(Link.LOST)

    assert zk.links() == [Link.LOST]
    assert [type(error) for error in zk.fatal] == [UsageError]
    assert "the chroot /not/there does not exist" in str(zk.fatal[0])
    assert zk.store.join(int(DEADLINE_S * 1000))


def test_a_server_before_3_6_is_read_one_by_one_and_asked_once(proxy: Proxy, chroot: str) -> None:
    proxy.unknown = {Op.MULTI_READ}
    sessions = zookeeper_sessions(below(chroot, proxy))
    first = Recorder(below(chroot, proxy))
    try:
        first.linked(Link.CONNECTED)
        assert proxy.connections == 2  # one of them was for the probe
        nodes = first.ask(*[Read("/")] * 3)
        assert nodes is not None
        assert first.links() == [Link.CONNECTED]
    finally:
        first.close()

    seen: list[object] = []
    for expected in (4, 5):  # the factory remembers the result of the probe
        linked = threading.Event()
        store = sessions(lambda item, linked=linked: (seen.append(item), linked.set()))
        assert linked.wait(DEADLINE_S)
        assert proxy.connections == expected
        store.close()
        assert store.join(int(DEADLINE_S * 1000))


def test_a_server_that_forgets_multi_read_costs_one_unread_answer(proxy: Proxy, chroot: str) -> None:
    with session(below(chroot, proxy)) as zk:
        assert zk.ask(Read("/"), Read("/")) is not None
        proxy.unknown = {Op.MULTI_READ}  # as a server of another release
        zk.store.sync(90)  # the answer to this sync comes later than the others
        assert zk.ask(Read("/"), Read("/")) is None
        zk.linked(Link.CONNECTED, times=2)
        assert zk.ask(Read("/"), Read("/")) is not None


def test_a_tree_answers_at_once_and_reads_on_through_a_broken_link(proxy: Proxy, chroot: str) -> None:
    with Tree(below(chroot, proxy)) as tree:
        assert tree.commit(Transaction(writes=(CreateNode("/a", b"1"),))).outcome is Outcome.COMMITTED
        proxy.cut()
        tree.sync()
        assert [node.data for node in tree.read([Read("/a")])] == [b"1"]
        assert tree.commit(Transaction(writes=(DeleteNode("/a", 5),))).reason == "BadVersion"
        assert tree.session_id > 0


def test_a_tree_says_who_does_not_answer_and_what_to_do(proxy: Proxy, chroot: str) -> None:
    proxy.down()
    with Tree(below(chroot, proxy), deadline_ms=300) as tree:
        for call in (lambda: tree.read([Read("/")]), lambda: tree.commit(Transaction(writes=())), tree.sync):
            with pytest.raises(UnavailableError) as error:
                call()
            assert str(error.value).startswith(f"ZooKeeper at {proxy.hosts} did not answer within 300 ms")
            assert str(error.value).endswith("check that it runs and that the address is right, then try again")


def test_a_tree_with_a_missing_chroot_or_a_wrong_address_is_the_callers_error(zookeeper: EmbeddedZooKeeper) -> None:
    with (
        Tree(f"{zookeeper.hosts}/nowhere") as tree,
        pytest.raises(UsageError, match="the chroot /nowhere does not exist"),
    ):
        tree.read([Read("/")])
    with pytest.raises(UsageError, match="is no port"):
        Tree("127.0.0.1:x")


def test_a_commit_whose_answer_does_not_come_in_time_is_unknown(proxy: Proxy, chroot: str) -> None:
    with Tree(below(chroot, proxy), deadline_ms=15_000) as tree:
        tree.sync()
        tree._deadline_ms = 200
        proxy.stall()
        assert tree.commit(Transaction(writes=(CreateNode("/a"),))).outcome is Outcome.UNKNOWN
        proxy.flow()
