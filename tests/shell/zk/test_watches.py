"""Many watched reads at once, on a real server. They need few requests, and no change is missed."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.shell.zk_world import Recorder, session
from zkcoord.shell.ports import ReadDone, Unreadable, WatchFired
from zkcoord.shell.zk.config import Acl, ZooKeeperConfig
from zkcoord.shell.zk.jute import Op
from zkcoord.shell.zk.reading import Reading
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode, Transaction

pytestmark = pytest.mark.zookeeper

THERE, MISSING = [f"/n{n}" for n in range(6)], [f"/m{n}" for n in range(3)]


@pytest.fixture(params=[True, False], ids=["together", "one by one"])
def zk(request: pytest.FixtureRequest, chroot: str) -> Iterator[Recorder]:
    with session(chroot) as recorder:
        recorder.store.session.multi_read = request.param
        yield recorder


@pytest.fixture
def other(chroot: str) -> Iterator[Recorder]:
    with session(chroot) as recorder:
        recorder.commit(*(CreateNode(path, b"0") for path in THERE))
        yield recorder


def watched(*paths: str) -> list[Read]:
    return [Read(path, watch=True) for path in paths]


def told(zk: Recorder) -> list[str]:
    """The paths of all events so far, with repetitions."""
    zk.sync()
    return sorted(item.path for item in zk.seen if isinstance(item, WatchFired))


def test_many_watches_tell_once_each_what_they_ended(zk: Recorder, other: Recorder) -> None:
    nodes = zk.ask(*watched(*THERE), Read("/n0"), *watched(*MISSING), Read("/", Kind.CHILDREN)) or ()
    assert [node.exists for node in nodes] == [True] * 7 + [False] * 3 + [True]
    assert [node.path for node in nodes] == [*THERE, "/n0", *MISSING, "/"]
    assert told(zk) == []

    other.commit(SetNode("/n1", b"1", 0), DeleteNode("/n2", 0), CreateNode("/m1"))
    other.commit(SetNode("/n1", b"2", 1), CreateNode("/n2"), SetNode("/m1", b"1", 0))

    assert told(zk) == ["/m1", "/n1", "/n2"]


def test_a_node_that_must_not_be_read_is_left_out_and_the_others_are_watched(
    zk: Recorder, other: Recorder, chroot: str
) -> None:
    closed = ZooKeeperConfig(digest="alice:secret", acl=(Acl(31, "auth", ""),))
    with session(chroot, config=closed) as alice:
        alice.commit(CreateNode("/hers"))
    answer = zk.read(*watched("/hers", *THERE))
    assert [each.path for each in answer.unreadable if isinstance(each, Unreadable)] == ["/hers"]
    assert [node.path for node in answer.nodes or ()] == THERE
    other.commit(SetNode("/n5", b"1", 0))
    assert told(zk) == ["/n5"]


def test_changes_between_an_answer_and_its_watches_are_told_at_once(
    chroot: str, other: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk = Reading._bulk
    changes = [SetNode("/n1", b"1", 0), DeleteNode("/n2", 0), CreateNode("/m1")]
    changes += [DeleteNode("/n3", 0), CreateNode("/n3")]

    def late(self: Reading, first: int, size: int, error: int, frame: bytes, offset: int) -> None:
        if len(self.reads) > 1:
            other.commit(*changes)
        bulk(self, first, size, error, frame, offset)

    with session(chroot) as zk:
        monkeypatch.setattr(Reading, "_bulk", late)
        nodes = zk.ask(*watched(*THERE, *MISSING)) or ()
        assert [node.data for node in nodes if node.exists] == [b"0"] * 6  # the values from before the change
        assert told(zk) == ["/m1", "/n1", "/n2", "/n3"]
        other.commit(SetNode("/n4", b"1", 0), CreateNode("/m2"))
        assert told(zk) == ["/m1", "/m2", "/n1", "/n2", "/n3", "/n4"]


@pytest.mark.parametrize(("count", "requests"), [(1_200, {Op.MULTI_READ: 3, Op.SET_WATCHES: 3}), (3, {Op.GET_DATA: 3})])
def test_so_many_watches_need_so_many_requests(chroot: str, count: int, requests: dict[Op, int]) -> None:
    with session(chroot) as zk:
        paths = [f"/c{n}" for n in range(count)]
        zk.commit(*(CreateNode(path) for path in paths))
        session_send, sent = zk.store.session.send, list[Op]()

        def send(make: Any) -> bool:
            calls = make()
            sent.extend(Op(call.type) for call in calls)
            return session_send(lambda: calls)

        zk.store.session.send = send
        assert len(zk.ask(*watched(*paths)) or ()) == count
        assert {op: sent.count(op) for op in sent} == requests
        zk.commit(*(SetNode(path, b"1", 0) for path in paths))
        assert told(zk) == sorted(paths)


def test_a_reader_that_follows_its_watches_misses_no_change(zk: Recorder, other: Recorder) -> None:
    """One writer sets, deletes and creates nodes at random. At the end the reader must know all of them."""
    paths, rng = [*THERE, *MISSING], random.Random(7)
    over = threading.Event()

    def write() -> None:
        for n in range(1_500):
            path = rng.choice(paths)
            write = rng.choice((SetNode(path, b"%d" % n, ANY_VERSION), DeleteNode(path, ANY_VERSION), CreateNode(path)))
            other.store.commit(-n - 1, Transaction(writes=(write,)))
            if n % 10 == 0:
                other.answer(-n - 1)
        other.sync()
        over.set()

    def known() -> dict[str, bytes | None]:
        """The last value that was read of each node, unless the node is known to have changed since."""
        found: dict[str, bytes | None] = {}
        for item in list(zk.seen):
            if isinstance(item, ReadDone):
                found |= {node.path: node.data if node.exists else None for node in item.nodes or ()}
                for path in early:
                    found.pop(path, None)  # its event came before the answer
                early.clear()
            elif isinstance(item, WatchFired):
                found.pop(item.path, None)
                early.add(item.path)
        return found

    early: set[str] = set()
    writer = threading.Thread(target=write)
    writer.start()
    rounds = 0
    while True:
        ended = over.is_set()
        if ended:
            zk.sync()
        early.clear()
        found = known()
        left = [path for path in paths if path not in found]
        if ended and not left:
            break
        if left:
            zk.read(*watched(*left))
            rounds += 1
    writer.join()
    with_nodes = other.ask(*(Read(path) for path in paths)) or ()
    assert found == {node.path: node.data if node.exists else None for node in with_nodes}
    assert rounds > 20
