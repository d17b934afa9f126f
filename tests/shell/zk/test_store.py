"""The store on a real server: each operation, each outcome, the order of events and answers, reads in bulk."""

import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.shell.zk_world import Recorder, session
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.shell.ports import TOO_LARGE, CommitDone, Heard, Link, Outcome, ReadDone, SyncDone, Unreadable, WatchFired
from zkcoord.shell.zk import connection, multiread
from zkcoord.shell.zk.config import Acl, ZooKeeperConfig
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction

pytestmark = pytest.mark.zookeeper
CHILDREN = Kind.CHILDREN


@pytest.fixture
def zk(chroot: str) -> Iterator[Recorder]:
    with session(chroot) as recorder:
        yield recorder


@pytest.fixture
def other(chroot: str) -> Iterator[Recorder]:
    with session(chroot) as recorder:
        yield recorder


def one(zk: Recorder, read: Read) -> Node:
    nodes = zk.ask(read)
    assert nodes is not None
    return nodes[0]


def shown(nodes: tuple[Node, ...] | None) -> list[tuple[str, int, bytes, tuple[str, ...]]]:
    """Path, version (-1: missing), data and children of each node."""
    assert nodes is not None
    return [(n.path, n.stat.version if n.stat else -1, n.data, n.children) for n in nodes]


def fired(zk: Recorder) -> list[WatchFired]:
    """The events so far. The sync brings events that are under way."""
    zk.sync()
    return [item for item in zk.seen if isinstance(item, WatchFired)]


def test_a_committed_multi_tells_the_version_after_each_write(zk: Recorder) -> None:
    done = zk.commit(
        CreateNode("/a", b"1"), SetNode("/a", b"2", 0), CheckNode("/a", 1), CreateNode("/b"), DeleteNode("/b", 0)
    )

    nodes = zk.ask(Read("/a"), Read("/b")) or ()
    assert shown(nodes) == [("/a", 1, b"2", ()), ("/b", -1, b"", ())]
    written = nodes[0].stat
    assert written is not None and written.mzxid > 0
    assert done == CommitDone(1, Outcome.COMMITTED, (0, 1, -1, 0, -1), zxid=written.mzxid)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (CheckNode("/none", -1), "NoNode"),
        (CheckNode("/a", 1), "BadVersion"),
        (CreateNode("/a"), "NodeExists"),
        (CreateNode("/none/x"), "NoNode"),
        (CreateNode("/mortal/x"), "NoChildrenForEphemerals"),
        (SetNode("/a", b"", 7), "BadVersion"),
        (DeleteNode("/a", -1), "NotEmpty"),
        (DeleteNode("/none", 0), "NoNode"),
        (CreateNode("/a/\0"), "BadArguments"),
    ],
)
def test_a_refused_multi_names_its_write_and_nothing_of_it_happened(
    zk: Recorder, write: CheckNode | CreateNode | SetNode | DeleteNode, reason: str
) -> None:
    zk.commit(CreateNode("/a"), CreateNode("/a/b"), CreateNode("/mortal", ephemeral=True))

    done = zk.commit(CreateNode("/new"), write, CreateNode("/late"))

    assert done == CommitDone(2, Outcome.REFUSED, failed_at=1, reason=reason)
    assert shown(zk.ask(Read("/", CHILDREN))) == [("/", 0, b"", ("a", "mortal"))]


def test_a_missing_right_refuses_a_write_and_leaves_a_node_out_of_a_read(chroot: str, zk: Recorder) -> None:
    closed = ZooKeeperConfig(digest="alice:secret", acl=(Acl(31, "auth", ""),))
    with session(chroot, config=closed) as alice:
        assert alice.commit(CreateNode("/hers")).outcome is Outcome.COMMITTED
        assert alice.commit(SetNode("/hers", b"x", 0)).outcome is Outcome.COMMITTED

    assert zk.commit(SetNode("/hers", b"y", 1)) == CommitDone(1, Outcome.REFUSED, failed_at=0, reason="NoAuth")
    why = "ZooKeeper refuses to let us read it (NoAuth): an operator must grant READ"
    for multi_read in (True, False):
        zk.store.session.multi_read = multi_read
        answer = zk.read(Read("/"), Read("/hers"), Read("/none"), Read("/hers", CHILDREN, watch=True))
        assert shown(answer.nodes) == [("/", 0, b"", ()), ("/none", -1, b"", ())]
        assert answer.unreadable == (Unreadable("/hers", Kind.DATA, why), Unreadable("/hers", CHILDREN, why))
    assert zk.fatal == []


def test_an_answer_that_is_too_large_costs_the_connection_and_names_its_node(
    zk: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    zk.commit(CreateNode("/big", b"x" * 3_000), CreateNode("/small"))
    monkeypatch.setattr(connection, "FRAME_BYTES_MAX", 2_000)

    together = zk.read(Read("/small"), Read("/big"))
    zk.linked(Link.CONNECTED, 2)
    alone = zk.read(Read("/small"), Read("/big"))
    zk.linked(Link.CONNECTED, 3)

    assert together == ReadDone(together.token, None)
    assert [(u.path, u.breaks_link) for u in alone.unreadable] == [("/big", True)]
    assert shown(zk.ask(Read("/small"))) == [("/small", 0, b"", ())]
    assert zk.fatal == []


def test_of_a_large_answer_it_is_told_that_more_of_it_has_come(zk: Recorder) -> None:
    """Over a slow link, the answer takes longer than a server may be silent."""
    zk.commit(CreateNode("/big", b"x" * 500_000))
    zk.ask(Read("/"))
    assert Heard() not in zk.seen
    answer = zk.read(Read("/big"))
    assert Heard() in zk.seen[: zk.seen.index(answer)]


def test_an_acl_without_an_identity_is_refused(chroot: str) -> None:
    with session(chroot, config=ZooKeeperConfig(acl=(Acl(31, "auth", ""),))) as nobody:
        assert nobody.commit(CreateNode("/x")) == CommitDone(1, Outcome.REFUSED, failed_at=0, reason="InvalidACL")


def test_a_sequential_create_stands_in_its_channel_not_beside_it(zk: Recorder) -> None:
    zk.commit(CreateNode("/channel"))

    done = zk.commit(CreateNode("/channel", b"one", sequential=True), CreateNode("/channel", b"two", sequential=True))
    top = zk.commit(CreateNode("/", b"top", sequential=True))

    assert (done.versions, top.outcome) == ((0, 0), Outcome.COMMITTED)
    assert shown(zk.ask(Read("/", CHILDREN), Read("/channel", CHILDREN), Read("/channel/0000000001"))) == [
        ("/", 0, b"", ("0000000001", "channel")),
        ("/channel", 0, b"", ("0000000000", "0000000001")),
        ("/channel/0000000001", 0, b"two", ()),
    ]


def test_an_ephemeral_node_carries_the_session_and_goes_with_it(chroot: str, zk: Recorder) -> None:
    with session(chroot) as mortal:
        mortal.commit(CreateNode("/m", ephemeral=True))
        node = one(zk, Read("/m", watch=True))
        assert node.stat is not None
        assert node.stat.ephemeral_owner == mortal.store.session._session_id
    zk.wait(lambda seen: WatchFired("/m", data=True, children=True) in seen)
    assert not one(zk, Read("/m")).exists


def test_everything_stands_below_the_chroot(zookeeper: EmbeddedZooKeeper, chroot: str, zk: Recorder) -> None:
    zk.commit(CreateNode("/x", b"1"), CreateNode("/x", sequential=True))
    root = "/" + chroot.partition("/")[2]

    with session(zookeeper.hosts) as plain:
        nodes = plain.ask(Read(root, CHILDREN), Read(f"{root}/x"), Read(f"{root}/x", CHILDREN))

    assert shown(nodes) == [
        (root, 0, b"", ("x",)),
        (f"{root}/x", 0, b"1", ()),
        (f"{root}/x", 0, b"", ("0000000000",)),
    ]


def test_each_watch_tells_once_what_it_ended(zk: Recorder, other: Recorder) -> None:
    zk.commit(CreateNode("/data"), CreateNode("/parent"), CreateNode("/both"))
    zk.ask(
        Read("/data", watch=True),
        Read("/parent", CHILDREN, watch=True),
        Read("/both", watch=True),
        Read("/both", CHILDREN, watch=True),
        Read("/", CHILDREN, watch=True),
    )

    other.commit(SetNode("/data", b"1", 0), CreateNode("/parent/c"), DeleteNode("/both", 0))
    other.commit(SetNode("/data", b"2", 1), CreateNode("/parent/d"))
    zk.ask(Read("/data"))

    assert sorted(fired(zk), key=lambda e: e.path) == [
        WatchFired("/", data=False, children=True),
        WatchFired("/both", data=True, children=True),
        WatchFired("/data", data=True, children=False),
        WatchFired("/parent", data=False, children=True),
    ]


@pytest.mark.parametrize("kind", Kind)
def test_a_watch_on_a_missing_node_tells_of_its_creation(zk: Recorder, other: Recorder, kind: Kind) -> None:
    assert not one(zk, Read("/later", kind, watch=True)).exists

    other.commit(CreateNode("/later"))
    other.commit(SetNode("/later", b"1", 0), CreateNode("/later/c"))

    assert fired(zk) == [WatchFired("/later", data=True, children=True)]


def test_an_unwatched_read_leaves_no_watch(zk: Recorder, other: Recorder) -> None:
    other.commit(CreateNode("/a"))
    zk.ask(Read("/a"), Read("/a", CHILDREN), Read("/none"), Read("/none", CHILDREN))

    other.commit(SetNode("/a", b"1", 0), CreateNode("/a/b"), CreateNode("/none"))

    assert fired(zk) == []


def test_requests_are_executed_and_answered_in_their_order(zk: Recorder) -> None:
    zk.store.commit(1, Transaction(writes=(CreateNode("/n", b"0"),)))
    for n in range(50):
        zk.store.read(100 + n, [Read("/n"), Read("/n", CHILDREN), Read("/n")])
        zk.store.commit(200 + n, Transaction(writes=(SetNode("/n", str(n + 1).encode(), n),)))
        zk.store.sync(300 + n)
    zk.answer(349)

    answers = [item for item in zk.seen if isinstance(item, ReadDone | CommitDone | SyncDone)]
    assert [a.token for a in answers] == [1, *(t for n in range(50) for t in (100 + n, 200 + n, 300 + n))]
    values = [[node.data for node in a.nodes or ()] for a in answers if isinstance(a, ReadDone)]
    assert values == [[str(n).encode(), b"", str(n).encode()] for n in range(50)]
    assert all(a.outcome is Outcome.COMMITTED for a in answers if isinstance(a, CommitDone))


def test_an_event_comes_before_the_answer_that_shows_its_change(zk: Recorder, other: Recorder) -> None:
    """One writer changes eight nodes at random, while a reader reads them with watches all the time."""
    paths, changes, rng = [f"/n{n}" for n in range(8)], 3_000, random.Random(7)
    other.commit(*(CreateNode(path, b"0") for path in paths), CreateNode("/end"))

    def write() -> None:
        for n in range(changes):
            path = rng.choice(paths)
            other.store.commit(-n, Transaction(writes=(SetNode(path, str(n).encode(), -1),)))
            if n % 20 == 0:
                other.answer(-n)
        other.commit(SetNode("/end", b"1", 0))

    writer = threading.Thread(target=write)
    writer.start()
    ended, asked = False, 0
    while not ended:
        for path in paths * 4:  # 32 reads under way, each with its own answer
            zk.store.read(1_000_000 + asked, [Read(path, watch=True)])
            asked += 1
        ended = one(zk, Read("/end")).data == b"1"
    writer.join()

    known: dict[str, int] = {}  # path -> the version that was read since the last event
    shown_changes = 0
    for item in zk.seen:
        if isinstance(item, WatchFired):
            known.pop(item.path, None)
        elif isinstance(item, ReadDone) and item.token >= 1_000_000:
            for node in item.nodes or ():
                assert node.stat is not None
                version = node.stat.version
                assert known.get(node.path, version) == version, "a change was shown before its event"
                if known.get(node.path) is None:
                    shown_changes += 1
                known[node.path] = version
    assert shown_changes > 8


def test_reads_in_bulk(zk: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    count, size = 5_000, 500
    zk.commit(CreateNode("/o"))
    for first in range(0, count, size):
        zk.commit(*(CreateNode(f"/o/{n}", b"g_host-1416335000123-0a1b2c3d-%d" % n) for n in range(first, first + size)))
    reads = [Read(f"/o/{n}") for n in range(count)] + [Read("/o/none")]

    def timed() -> tuple[float, tuple[Node, ...] | None]:
        best, nodes = 1e9, None
        for _ in range(3):
            began = time.perf_counter()
            nodes = zk.ask(*reads)
            best = min(best, time.perf_counter() - began)
        return count / best, nodes

    multi_speed, multi_nodes = timed()
    zk.store.session.multi_read = False
    single_speed, single_nodes = timed()

    with capsys.disabled():
        print(f"\n  {count} nodes: {multi_speed:,.0f}/s by multi-read, {single_speed:,.0f}/s one by one")
    assert multi_nodes == single_nodes
    assert shown(multi_nodes)[::1000] == [
        (f"/o/{n}", 0, f"g_host-1416335000123-0a1b2c3d-{n}".encode(), ()) for n in range(0, count, 1000)
    ] + [("/o/none", -1, b"", ())]


def test_reads_whose_answer_is_far_over_the_servers_limit_come_back(zk: Recorder) -> None:
    """`jute.maxbuffer` is 1 MiB, but the server applies it only to requests."""
    data = b"s" * 65_536
    for first in range(0, 120, 12):
        done = zk.commit(*(CreateNode(f"/s{n}", data) for n in range(first, first + 12)))
        assert done.outcome is Outcome.COMMITTED
    reads = [Read(f"/s{n % 120}") for n in range(multiread.READS_MAX)]

    nodes = zk.ask(*reads)

    assert nodes is not None
    assert [node.data for node in nodes] == [data] * len(reads)
    assert len(zk.links()) == 1


def test_a_listing_over_the_servers_limit_comes_back(zk: Recorder) -> None:
    zk.commit(CreateNode("/many"))
    names = tuple(f"{n:06}-{'x' * 120}" for n in range(10_000))
    for first in range(0, len(names), 1_000):
        assert zk.commit(*(CreateNode(f"/many/{n}") for n in names[first : first + 1_000])).outcome is Outcome.COMMITTED

    assert one(zk, Read("/many", CHILDREN)).children == names


def test_an_empty_read_and_an_empty_multi_are_answered(zk: Recorder) -> None:
    assert zk.ask() == ()
    assert zk.commit() == CommitDone(2, Outcome.COMMITTED)


def test_the_largest_multi_that_is_sent_is_accepted(zk: Recorder) -> None:
    from zkcoord.shell.zk.multi import REQUEST_BYTES_MAX

    zk.commit(CreateNode("/big"))
    fill = REQUEST_BYTES_MAX - 100
    done = zk.commit(SetNode("/big", b"x" * fill, 0))

    assert (done.outcome, done.versions) == (Outcome.COMMITTED, (1,))
    assert len(one(zk, Read("/big")).data) == fill


def test_a_multi_that_is_too_large_is_refused_and_not_sent(zk: Recorder) -> None:
    from zkcoord.shell.zk.multi import REQUEST_BYTES_MAX

    zk.commit(CreateNode("/big"))
    done = zk.commit(CheckNode("/", -1), SetNode("/big", b"x" * REQUEST_BYTES_MAX, 0))

    assert done == CommitDone(2, Outcome.REFUSED, (), 1, TOO_LARGE)
    assert zk.commit(SetNode("/big", b"x", 0)).versions == (1,)
