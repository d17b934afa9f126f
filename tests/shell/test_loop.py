"""The loop's own rules: reads wait for a sync after an unknown outcome; a lost session is thrown away with its inputs;
a lane whose writes are refused again and again waits, and reports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zkcoord.errors import UsageError
from zkcoord.shell.loop import REFUSALS_FREE, REOPEN_MS, Loop
from zkcoord.shell.ports import (
    TOO_LARGE,
    CallDone,
    CommitDone,
    FromStore,
    Heard,
    Input,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    Request,
    StoreInput,
    SyncDone,
    WatchFired,
)
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.writes import SetNode, Transaction

WRITE = Transaction(writes=(SetNode("/a", b"1", 0),), why="a test")


class Store:
    """A store that keeps its requests. The test answers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def read(self, token: int, reads: Sequence[Read]) -> None:
        self.asked.append(("read", token, *(read.path for read in reads)))

    def commit(self, token: int, transaction: Transaction) -> None:
        self.asked.append(("commit", token))

    def sync(self, token: int) -> None:
        self.asked.append(("sync", token))

    def drop_connection(self) -> None:
        self.asked.append(("drop",))

    def close(self) -> None:
        self.asked.append(("close",))


class Recorder:
    """A role that wants one node and notes its calls."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.told: list[Any] = []

    def session_opened(self, session_id: int, session_timeout_ms: int, now_ms: int) -> None:
        self.told.append(("opened", session_id))
        self.loop.tracker.want("/a")

    def session_resumed(self, session_timeout_ms: int, now_ms: int) -> None:
        self.told.append("resumed")

    def session_suspended(self, now_ms: int) -> None:
        self.told.append("suspended")

    def session_lost(self, now_ms: int) -> None:
        self.told.append("lost")

    def ended(self, now_ms: int) -> None:
        self.told.append("ended")

    def read(self, nodes: Sequence[Node], now_ms: int) -> None:
        self.told.append(("read", *(node.path for node in nodes)))

    def committed(self, tag: Any, done: CommitDone, sent_ms: int, now_ms: int) -> None:
        self.told.append((tag, done.outcome, sent_ms))

    def synced(self, sent_ms: int, now_ms: int) -> None:
        self.told.append(("synced", sent_ms))

    def called(self, done: CallDone, now_ms: int) -> None:
        self.told.append(done)

    def requested(self, request: Request, now_ms: int) -> None:
        self.told.append(request.name)

    def decide(self, now_ms: int) -> int | None:
        return None


class Bench:
    """A loop with its role and stores."""

    def __init__(self) -> None:
        self.stores: list[Store] = []
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.loop = Loop(self._open, lambda item: None)
        self.role = Recorder(self.loop)
        self.loop.run_role(self.role, lambda name, fields: self.events.append((name, fields)))

    def _open(self, sink: Callable[[StoreInput], None]) -> Store:
        self.stores.append(Store())
        return self.stores[-1]

    def step(self, now_ms: int, *items: StoreInput, session: int = 1) -> int | None:
        inputs: list[Input] = [FromStore(session, item) for item in items]
        return self.loop.step(inputs, now_ms)

    def connected(self) -> Store:
        """The first session is connected, and the wanted node is read."""
        self.step(0)
        self.step(1, LinkChanged(Link.CONNECTED, 77, 6_000))
        [store] = self.stores
        self.step(2, ReadDone(store.asked[0][1], (Node("/a", Kind.DATA, Stat(0, 1, 0)),)))
        store.asked.clear()
        self.role.told.clear()
        return store


def test_after_an_unknown_outcome_nothing_is_read_before_a_sync_is_answered() -> None:
    bench = Bench()
    store = bench.connected()
    bench.loop.commit(WRITE, "tag", 10)
    [(_, token)] = store.asked
    bench.step(11, CommitDone(token, Outcome.UNKNOWN))
    assert [asked[0] for asked in store.asked] == ["commit", "sync"]
    assert not bench.loop.settled
    bench.step(12, SyncDone(store.asked[1][1], True))
    assert store.asked[2][0] == "read"
    assert store.asked[2][2:] == ("/a",)
    assert bench.loop.settled
    assert bench.role.told == [("tag", Outcome.UNKNOWN, 10), ("synced", 11)]


def test_a_lost_session_is_replaced_and_what_it_still_says_counts_for_nothing() -> None:
    bench = Bench()
    bench.connected()
    assert bench.step(20, LinkChanged(Link.LOST)) == 20 + REOPEN_MS
    bench.step(20 + REOPEN_MS)
    assert len(bench.stores) == 2
    bench.step(300, LinkChanged(Link.CONNECTED, 78, 6_000), session=1)
    assert bench.role.told == ["lost"]
    bench.step(301, LinkChanged(Link.CONNECTED, 79, 6_000), session=2)
    assert bench.role.told == ["lost", ("opened", 79)]


def test_a_resumed_session_reads_everything_again_after_a_sync() -> None:
    bench = Bench()
    store = bench.connected()
    bench.step(20, LinkChanged(Link.SUSPENDED))
    assert bench.loop.tracker.unclean() == {""}
    bench.step(30, LinkChanged(Link.CONNECTED, 77, 6_000))
    assert [asked[0] for asked in store.asked] == ["sync"]
    bench.step(31, SyncDone(store.asked[0][1], True))
    assert [asked[0] for asked in store.asked] == ["sync", "read"]
    assert bench.role.told == ["suspended", "resumed", ("synced", 30)]


def test_a_lane_that_is_refused_again_and_again_waits_and_says_so_once() -> None:
    bench = Bench()
    store = bench.connected()
    for n in range(REFUSALS_FREE + 2):
        assert bench.loop.ready("lane", 100 + n) is (n <= REFUSALS_FREE)
        bench.loop.commit(WRITE, "tag", 100 + n, "lane")
        token = next(asked[1] for asked in reversed(store.asked) if asked[0] == "commit")
        bench.step(100 + n, CommitDone(token, Outcome.REFUSED, failed_at=0, reason="NoAuth"))
    assert not bench.loop.ready("lane", 105)
    assert bench.loop.ready("another", 105)
    [(name, fields)] = bench.events
    assert (name, fields["path"], fields["level"]) == ("write_refused", "/a", "warning")
    assert fields["why"].endswith(": an operator must grant this user the right to write there (ACL)")
    bench.loop.commit(WRITE, "tag", 9_000, "lane")
    token = next(asked[1] for asked in reversed(store.asked) if asked[0] == "commit")
    bench.step(9_001, CommitDone(token, Outcome.COMMITTED, versions=(1,)))
    assert bench.loop.ready("lane", 9_001)


def test_an_abandoned_loop_tells_its_role_closes_its_session_and_takes_nothing_more() -> None:
    bench = Bench()
    store = bench.connected()
    error = UsageError("no such chroot")
    request = Request("abandon", error)
    assert bench.loop.step([request], 50) is None
    assert (bench.loop.finished, bench.loop.fatal, request.future.done()) == (True, error, True)
    assert (store.asked, bench.role.told) == ([("close",)], ["ended"])
    assert bench.step(60, LinkChanged(Link.CONNECTED, 77, 6_000)) is None
    assert bench.role.told == ["ended"]


TWO_THIRDS_MS, HALF_MS = 4_000, 3_000


def test_the_answer_to_another_sync_does_not_open_the_gate() -> None:
    """Neither a sync for the lease nor the sync of an earlier gate opens it: later changes may be missing in what is
    read after them."""
    bench = Bench()
    store = bench.connected()
    bench.loop.sync(10)
    bench.loop.commit(WRITE, "tag", 10)
    bench.loop.commit(WRITE, "tag", 10)
    (_, for_the_lease), (_, first), (_, second) = store.asked
    bench.step(11, CommitDone(first, Outcome.UNKNOWN))
    bench.step(11, CommitDone(second, Outcome.UNKNOWN))
    (_, gate), (_, last_gate) = store.asked[3:]
    for token in (for_the_lease, gate):
        bench.step(12, SyncDone(token, True))
        assert not bench.loop.settled
        assert len(store.asked) == 5
    bench.step(13, SyncDone(last_gate, True))
    assert bench.loop.settled
    assert store.asked[5][0] == "read"
    bench.loop.sync(14)  # without an answer it does not close the gate either
    asked = list(store.asked)
    bench.step(15, SyncDone(asked[-1][1], False))
    assert (bench.loop.settled, store.asked) == (True, asked)


def test_a_gate_that_was_not_answered_is_asked_for_again() -> None:
    bench = Bench()
    store = bench.connected()
    bench.loop.commit(WRITE, "tag", 10)
    bench.step(11, CommitDone(store.asked[0][1], Outcome.UNKNOWN))
    bench.step(12, SyncDone(store.asked[1][1], False))
    assert [asked[0] for asked in store.asked] == ["commit", "sync", "sync"]
    bench.step(13, SyncDone(store.asked[2][1], True))
    assert bench.loop.settled


def test_a_silent_server_that_owes_an_answer_is_left() -> None:
    bench = Bench()
    store = bench.connected()
    assert bench.step(10_000) is None  # no request is open: heartbeats are the client's task
    bench.loop.sync(10_000)
    assert bench.step(10_000) == 10_000 + HALF_MS
    assert bench.step(10_000 + HALF_MS - 1, WatchFired("/b", True, False)) == 12_999 + TWO_THIRDS_MS
    bench.loop.commit(WRITE, "tag", 13_400)
    assert bench.step(13_500, Heard()) == 13_500 + TWO_THIRDS_MS  # a part of a large answer came
    assert bench.step(14_000) == 13_500 + TWO_THIRDS_MS
    assert ("drop",) not in store.asked
    again_ms = bench.step(13_500 + TWO_THIRDS_MS)
    assert store.asked[-1] == ("drop",)
    assert bench.events[-1][0] == "server_left"
    assert again_ms == 13_500 + 2 * TWO_THIRDS_MS
    bench.step(17_600, LinkChanged(Link.SUSPENDED))
    assert bench.step(30_000) is None  # now the client looks for a server
    assert store.asked.count(("drop",)) == 1


def test_the_clients_own_answer_is_no_word_of_the_server() -> None:
    bench = Bench()
    store = bench.connected()
    bench.loop.sync(3_000)
    bench.step(3_000)
    bench.loop.commit(WRITE, "tag", 4_000)
    assert bench.step(5_000, CommitDone(store.asked[-1][1], Outcome.REFUSED, reason=TOO_LARGE)) == 3_000 + HALF_MS


def test_f81_reads_that_are_answered_do_not_keep_a_server_that_owes_an_older_answer() -> None:
    """A follower without a leader answers reads of a node that is asked for again and again, but never a sync."""
    timeout_ms, again_ms = 45_000, 20_000
    bench = Bench()
    store = bench.connected()
    bench.step(0, LinkChanged(Link.CONNECTED, 77, timeout_ms))
    gate = store.asked[-1][1]
    bench.step(1, SyncDone(gate, True))
    bench.step(2, ReadDone(store.asked[-1][1], (Node("/a", Kind.DATA, Stat(0, 1, 0)),)))
    owed_ms = again_ms // 2
    bench.loop.sync(owed_ms)
    for now_ms in range(again_ms, 4 * timeout_ms, again_ms):
        if ("drop",) in store.asked:
            break
        bench.loop.tracker.touch("/a")
        bench.step(now_ms)
        _, token, path = store.asked[-1]
        assert path == "/a"
        bench.step(now_ms + 1, Heard())
        left_ms = bench.step(now_ms + 2, ReadDone(token, (Node("/a", Kind.DATA, Stat(0, 1, 0)),)))
        if left_ms is not None and left_ms < now_ms + again_ms:
            bench.step(left_ms)
            assert left_ms <= owed_ms + again_ms + timeout_ms * 2 // 3
    assert ("drop",) in store.asked


def test_an_answer_to_what_was_asked_before_is_a_word_of_a_server_that_owes_another() -> None:
    """Servers answer in order, so the missing answer may come after a large one."""
    bench = Bench()
    store = bench.connected()
    bench.step(0, LinkChanged(Link.CONNECTED, 77, 6_000))
    bench.step(1, SyncDone(store.asked[-1][1], True))
    read = store.asked[-1]
    assert read[0] == "read"
    bench.loop.sync(10)
    assert bench.step(3_000, Heard()) == 3_000 + TWO_THIRDS_MS
    assert bench.step(6_000, ReadDone(read[1], (Node("/a", Kind.DATA, Stat(0, 1, 0)),))) == 6_000 + TWO_THIRDS_MS
    assert ("drop",) not in store.asked
