"""Watches that a real server keeps: there are fewer requests, and events come as if each watch fired once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.shell.zk.test_watches import told, watched
from tests.shell.zk_world import Proxy, Recorder, session
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.shell.ports import Link, WatchFired
from zkcoord.shell.zk.jute import Event, Op
from zkcoord.shell.zk.reading import Reading
from zkcoord.shell.zk.watches import IDLE_MAX, UNAWAITED_MAX, Watches
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode, Transaction

pytestmark = pytest.mark.zookeeper

PATHS = [f"/n{n}" for n in range(3)]


@pytest.fixture
def zk(chroot: str) -> Iterator[Recorder]:
    with session(chroot) as recorder:
        recorder.commit(*(CreateNode(path, b"0") for path in PATHS))
        yield recorder


@pytest.fixture
def other(chroot: str) -> Iterator[Recorder]:
    with session(chroot) as recorder:
        yield recorder


def sent_by(zk: Recorder) -> list[Op]:
    """A list that gets all further requests of the session."""
    send, sent = zk.store.session.send, list[Op]()

    def noting(make: Callable[[], Any]) -> bool:
        def made() -> Any:
            calls = make()
            sent.extend(Op(call.type) for call in calls)
            return calls

        return send(made)

    zk.store.session.send = noting  # type: ignore[method-assign]
    return sent


def both(path: str) -> list[Read]:
    return [Read(path, Kind.CHILDREN, watch=True), Read(path)]


def fired(zk: Recorder) -> list[WatchFired]:
    """The events so far."""
    zk.sync()
    return [item for item in zk.seen if isinstance(item, WatchFired)]


def test_a_path_that_is_watched_again_is_kept_and_many_are_read_in_one_request(zk: Recorder) -> None:
    zk.ask(*both("/n0"), *both("/n1"))
    sent = sent_by(zk)
    zk.ask(*both("/n0"), *both("/n1"))
    assert sent == [Op.ADD_WATCH, Op.ADD_WATCH, Op.MULTI_READ]
    sent.clear()
    zk.ask(*both("/n0"), *both("/n1"))
    zk.ask(*watched("/n1"))
    zk.ask(Read("/n1", Kind.CHILDREN, watch=True))
    assert sent == [Op.MULTI_READ, Op.GET_DATA, Op.GET_CHILDREN]


def test_a_kept_list_is_answered_as_an_ordinary_one(zk: Recorder, other: Recorder) -> None:
    other.commit(CreateNode("/n0/b"), CreateNode("/n0/a"), SetNode("/n0", b"new", 0))
    asked = [Read("/n0", Kind.CHILDREN, watch=True), Read("/n0", watch=True), Read("/none", Kind.CHILDREN, watch=True)]
    ordinary = [zk.ask(read) or () for read in asked]
    for _ in range(2):
        assert zk.ask(*asked) == tuple(node for nodes in ordinary for node in nodes)
    found: tuple[Node, ...] = zk.ask(*asked) or ()
    assert found[0].children == ("a", "b")
    assert [node.stat and node.stat.child_changes for node in found] == [2, 0, None]


def test_a_kept_watch_tells_once_and_only_what_was_read_since(zk: Recorder, other: Recorder) -> None:
    for _ in range(3):
        zk.ask(*both("/n0"))
    other.commit(SetNode("/n0", b"1", 0))
    assert fired(zk) == []  # the data was read without a watch
    other.commit(CreateNode("/n0/a"), CreateNode("/n0/b"))
    other.commit(CreateNode("/n0/c"))
    assert fired(zk) == [WatchFired("/n0", data=False, children=True)]
    assert (zk.ask(*both("/n0")) or ())[0].children == ("a", "b", "c")
    zk.ask(*watched("/n0"))
    other.commit(DeleteNode("/n0/a", ANY_VERSION), SetNode("/n0", b"2", 1), SetNode("/n0", b"3", 2))
    assert fired(zk)[1:] == [
        WatchFired("/n0", data=False, children=True),
        WatchFired("/n0", data=True, children=False),
    ]


def listed(path: str) -> Read:
    return Read(path, Kind.CHILDREN, watch=True)


@pytest.mark.parametrize(
    ("unawaited", "then"),
    [
        (UNAWAITED_MAX, [Op.GET_CHILDREN, Op.GET_CHILDREN]),
        (UNAWAITED_MAX + 1, [Op.REMOVE_WATCHES, Op.GET_CHILDREN, Op.GET_CHILDREN]),
    ],
)
def test_a_kept_watch_whose_events_nobody_awaits_is_given_up(
    zk: Recorder, other: Recorder, zookeeper: EmbeddedZooKeeper, unawaited: int, then: list[Op]
) -> None:
    def watches() -> int:
        zk.sync()
        return int(zookeeper.mntr()["zk_watch_count"])

    without = watches()
    for _ in range(2):
        zk.ask(listed("/n0"))
    sent = sent_by(zk)
    other.commit(*(CreateNode(f"/n0/{n}") for n in range(1 + unawaited)))
    for number in (1, 2):
        assert len(fired(zk)) == number
        assert len((zk.ask(listed("/n0")) or ())[0].children) == unawaited + 2 * number - 1
        other.commit(CreateNode(f"/n0/a{number}"), CreateNode(f"/n0/b{number}"))
    assert len(fired(zk)) == 3
    assert [op for op in sent if op is not Op.SYNC] == then
    assert (watches() > without) is (Op.REMOVE_WATCHES not in then)  # an ordinary one ends with its event


def test_a_reply_says_which_kept_lists_nobody_else_has_changed(zk: Recorder, other: Recorder) -> None:
    zk.ask(listed("/n0"), listed("/n1"))
    own = [CreateNode("/n0", b"", sequential=True), CreateNode("/n0/a"), DeleteNode("/n0/a", 0), CreateNode("/n1/a")]
    assert zk.commit(CreateNode("/n0/c"), *own[:1]).alone == ()  # the ordinary watch fired at the first change
    zk.ask(listed("/n0"), listed("/n1"))
    done = zk.commit(*own)
    assert (done.made, done.alone) == (("/n0/0000000002",), ("/n0", "/n1"))
    assert zk.commit(SetNode("/n0", b"1", 0), SetNode("/n1", b"1", 0)).alone == ()  # no list changed
    assert zk.commit(*own[:1], DeleteNode("/n1/a", 0)).alone == ("/n0", "/n1")  # its watch is still there
    before = len(fired(zk))
    other.commit(CreateNode("/n0/b"))
    assert fired(zk)[before:] == [WatchFired("/n0", data=False, children=True)]
    assert zk.commit(*own[1:3], CreateNode("/n1/b")).alone == ("/n1",)  # /n0 was not read after the other one's change
    zk.ask(listed("/n0"))
    assert zk.commit(*own[1:3]).alone == ("/n0",)


def test_a_change_of_somebody_else_that_comes_with_an_own_one_is_not_overlooked(zk: Recorder, other: Recorder) -> None:
    for number in range(20):
        for _ in range(2):
            zk.ask(listed("/n0"))
        theirs, mine = 1_000 + number, 2_000 + number
        other.store.commit(theirs, Transaction(writes=(CreateNode(f"/n0/theirs{number}"),)))
        zk.store.commit(mine, Transaction(writes=(CreateNode(f"/n0/mine{number}"),)))
        alone = zk.answer(mine).alone
        other.answer(theirs)
        came = len(fired(zk))
        (list_,) = zk.ask(Read("/n0", Kind.CHILDREN)) or ()
        assert len(list_.children) == 2 * number + 2
        if alone:  # the other one's change came later, and was told after the reply
            order = [item for item in zk.seen if isinstance(item, WatchFired) or getattr(item, "token", 0) == mine]
            assert isinstance(order[-1], WatchFired)
        assert came > number


def test_a_kept_node_that_goes_and_comes_again_is_told_of_each_time(zk: Recorder, other: Recorder) -> None:
    for _ in range(2):
        zk.ask(*watched("/n0"))
    for number in range(3):
        other.commit(DeleteNode("/n0", ANY_VERSION))
        assert len(fired(zk)) == 2 * number + 1
        assert [node.exists for node in zk.ask(*watched("/n0", "/n1")) or ()] == [False, True]
        other.commit(CreateNode("/n0", b"again"))
        assert len(fired(zk)) == 2 * number + 2
        assert [node.data for node in zk.ask(*watched("/n0")) or ()] == [b"again"]


def test_the_end_of_a_node_is_told_also_where_it_is_read_by_itself_among_many(zk: Recorder, other: Recorder) -> None:
    """Its read stands between two lists, and is not a part of the multi-read."""
    others = [f"/m{n}" for n in range(3)]
    other.commit(*(CreateNode(path) for path in others))
    zk.ask(listed("/n0"), *watched("/n1"), listed("/n2"), *watched(*others))
    for _ in range(2):
        told_before = told(zk).count("/n1")
        other.commit(DeleteNode("/n1", ANY_VERSION))
        assert told(zk).count("/n1") == told_before + 1
        other.commit(CreateNode("/n1"))
        zk.ask(*watched("/n1"))


def test_a_new_connection_keeps_nothing_until_it_is_asked_again(chroot: str, zookeeper: EmbeddedZooKeeper) -> None:
    root = "/" + chroot.partition("/")[2]
    with Proxy(zookeeper.port) as proxy, session(proxy.hosts + root) as zk, session(chroot) as other:
        other.commit(*(CreateNode(path) for path in PATHS))
        for _ in range(2):
            zk.ask(*watched(*PATHS))
        proxy.cut()
        zk.linked(Link.CONNECTED, 2)
        other.commit(SetNode("/n0", b"1", 0))
        assert told(zk) == []
        sent = sent_by(zk)
        zk.ask(*watched(*PATHS))
        zk.ask(*watched(*PATHS))
        assert sent == [Op.GET_DATA] * 3 + [Op.ADD_WATCH] * 3 + [Op.MULTI_READ]
        other.commit(*(SetNode(path, b"2", ANY_VERSION) for path in PATHS))
        assert told(zk) == PATHS


def test_a_server_that_keeps_no_watches_is_asked_once(chroot: str, zookeeper: EmbeddedZooKeeper) -> None:
    root = "/" + chroot.partition("/")[2]
    with Proxy(zookeeper.port) as proxy, session(proxy.hosts + root) as zk, session(chroot) as other:
        proxy.unknown = {Op.ADD_WATCH}
        other.commit(CreateNode("/n0"))
        zk.ask(*watched("/n0"))
        sent = sent_by(zk)
        assert zk.ask(*watched("/n0")) is None
        zk.linked(Link.CONNECTED, 2)
        for _ in range(3):
            assert zk.ask(*watched("/n0"))
        assert sent == [Op.ADD_WATCH, Op.GET_DATA, Op.GET_DATA, Op.GET_DATA, Op.GET_DATA]
        other.commit(SetNode("/n0", b"1", 0))
        assert told(zk) == ["/n0"]


def test_f304_a_connection_that_breaks_under_the_question_is_no_refusal(
    chroot: str, zookeeper: EmbeddedZooKeeper
) -> None:
    root = "/" + chroot.partition("/")[2]
    with Proxy(zookeeper.port) as proxy, session(proxy.hosts + root) as zk:
        zk.commit(CreateNode("/n0"))
        zk.ask(*watched("/n0"))
        sent = sent_by(zk)
        proxy.stall()
        zk.store.read(-1, watched("/n0"))
        proxy.cut()
        proxy.flow()
        assert zk.answer(-1).nodes is None
        zk.linked(Link.CONNECTED, 2)
        assert (sent, zk.store.session.keeps_watches) == ([Op.ADD_WATCH, Op.GET_DATA], True)


def test_f304_a_server_without_lasting_watches_tells_each_change_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`WatchManagerOptimized` does not know such watches. The server answers MarshallingError, and stays connected."""
    manager = "org.apache.zookeeper.server.watch.WatchManagerOptimized"
    options = [f"-Dzookeeper.watchManagerName={manager}"]
    with (
        EmbeddedZooKeeper(fsync=False, jvm_options=options) as server,
        session(server.hosts) as zk,
        session(server.hosts) as other,
    ):
        other.commit(*(CreateNode(path) for path in PATHS))
        zk.ask(*watched(*PATHS))
        assert zk.ask(*watched(*PATHS)) is None
        zk.linked(Link.CONNECTED, 2)
        for number in (1, 2, 3):
            assert zk.ask(*watched(*PATHS))
            other.commit(*(SetNode(path, b"1", ANY_VERSION) for path in PATHS))
            assert told(zk) == sorted(PATHS * number)
    said = [text for _, _, text in caplog.record_tuples if "watches that stay" in text]
    assert said == [
        f"ZooKeeper at {server.hosts} refuses watches that stay (addWatch: Marshalling): nodes are watched anew after"
        " each change, with more requests; its setting zookeeper.watchManagerName may be the cause"
    ]


def test_a_node_kept_while_its_watch_is_on_the_way_is_read_once_more(
    zk: Recorder, other: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an ordinary watch is left after one that stays, it ends the one that stays."""
    paths = [f"/m{n}" for n in range(4)]
    other.commit(*(CreateNode(path) for path in paths[:3]))
    bulk, again = Reading._bulk, [True]

    def between(self: Reading, first: int, size: int, error: int, frame: bytes, offset: int) -> None:
        if again and len(self.reads) == 4:
            again.clear()
            zk.store.read(-1, watched("/m0", "/m3"))
            other.commit(SetNode("/m0", b"1", 0), CreateNode("/m3"))
        bulk(self, first, size, error, frame, offset)

    monkeypatch.setattr(Reading, "_bulk", between)
    nodes = zk.ask(*watched(*paths)) or ()
    assert [node.data for node in nodes if node.exists] == [b"1", b"", b"", b""]
    zk.answer(-1)
    assert told(zk) == []
    for number in (1, 2):
        other.commit(*(SetNode(path, b"2", ANY_VERSION) for path in paths))
        assert told(zk) == sorted(paths * number)
        zk.ask(*watched(*paths))


def test_the_server_forgets_what_nobody_waits_for(zk: Recorder, other: Recorder, zookeeper: EmbeddedZooKeeper) -> None:
    def watches() -> int:
        return int(zookeeper.mntr()["zk_watch_count"])

    before = watches()
    paths = [f"/k{n}" for n in range(IDLE_MAX - 1)]
    other.commit(*(CreateNode(path) for path in paths))
    for _ in range(2):
        zk.ask(*watched(*paths))
    assert watches() - before >= len(paths)
    other.commit(*(DeleteNode(path, 0) for path in paths))
    assert told(zk) == sorted(paths)
    zk.ask(*watched("/n0"))
    sent = sent_by(zk)
    zk.ask(*watched("/n1"))
    assert sent == [Op.REMOVE_WATCHES] * len(paths) + [Op.GET_DATA]
    zk.sync()
    assert watches() - before <= 2
    other.commit(*(CreateNode(path) for path in paths), SetNode("/n0", b"1", 0))
    assert told(zk) == sorted([*paths, "/n0"])


class Unlocked:
    """A lock that does nothing: these calls are made on one thread."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_an_event_before_the_answer_is_a_part_of_it() -> None:
    watches = Watches(Unlocked())
    assert [watches.ask("/a", keep=True) for _ in range(3)] == [False, True, False]
    assert not watches.fired(Event.CHANGED, "/a")
    watches.answered("/a", Kind.DATA)
    assert [watches.fired(event, "/a") for event in (Event.CHILD, Event.CHANGED, Event.CHANGED)] == [False, True, False]
    watches.answered("/a", Kind.CHILDREN)
    assert [watches.fired(event, "/a") for event in (Event.CHANGED, Event.DELETED, Event.CREATED)] == [
        False,
        True,
        False,
    ]
    assert watches.fired(Event.CHILD, "/b")  # an ordinary watch


def test_asked_and_armed_watches_are_not_forgotten() -> None:
    watches = Watches(Unlocked())
    for path in [f"/p{n}" for n in range(IDLE_MAX)]:
        watches.ask(path, keep=True)
        watches.ask(path, keep=True)
    assert watches.idle() == []
    watches.answered("/p0", Kind.DATA)
    watches.refused("/p0")
    watches.refused("/p1")
    for _ in range(2):
        watches.refused("/p2")
    watches.ask("/more", keep=False)
    watches.refused("/more")
    for n in range(IDLE_MAX):
        watches.ask(f"/q{n}", keep=False)
    assert watches.idle() == ["/p2"]
    assert not watches.kept("/p2") and watches.kept("/p1")
