"""The real loop, store, reads and watches on a model of a server, one small step after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tests.shell.watching_server import WatchingServer, WatchingSession
from zkcoord.shell.loop import UNREADABLE_MS, Loop
from zkcoord.shell.ports import CallDone, CommitDone, Input, Outcome, Request, StoreInput
from zkcoord.shell.tracker import Tracker
from zkcoord.shell.zk.store import KazooStore
from zkcoord.shell.zk.watches import IDLE_MAX, UNAWAITED_MAX
from zkcoord.tree.snapshot import Kind, Node, key_of
from zkcoord.tree.writes import CreateNode, SetNode, Transaction, Write

REST_STEPS = 20_000
CHROOT = "/zk"


class Role:
    """A role that does what the test wants, and keeps what it is told."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Kind], Node] = {}
        self.todo: list[Callable[[], None]] = []
        self.told = self.refused = 0

    def read(self, nodes: Sequence[Node], now_ms: int) -> None:
        self.known.update({(node.path, node.kind): node for node in nodes})

    def committed(self, tag: Any, done: CommitDone, sent_ms: int, now_ms: int) -> None:
        assert not done.alone or done.outcome is Outcome.COMMITTED, f"a refused one tells of {done.alone}"
        self.told += len(done.alone)
        self.refused += done.outcome is Outcome.REFUSED

    def decide(self, now_ms: int) -> int | None:
        for action in self.todo:
            action()
        self.todo.clear()
        return None

    def session_opened(self, session_id: int, session_timeout_ms: int, now_ms: int) -> None: ...

    def session_resumed(self, session_timeout_ms: int, now_ms: int) -> None: ...

    def session_suspended(self, now_ms: int) -> None: ...

    def session_lost(self, now_ms: int) -> None: ...

    def synced(self, sent_ms: int, now_ms: int) -> None: ...

    def called(self, done: CallDone, now_ms: int) -> None: ...

    def requested(self, request: Request, now_ms: int) -> None: ...

    def ended(self, now_ms: int) -> int | None: ...


class Bench:
    """A loop with one session, and a server that somebody else changes, too."""

    def __init__(self, *, coexist: bool, idle_max: int = IDLE_MAX, unawaited_max: int = UNAWAITED_MAX) -> None:
        self._limits = idle_max, unawaited_max
        self.server = WatchingServer(coexist=coexist)
        self.server.apply([CreateNode(CHROOT)])
        self.session: WatchingSession
        self.wanted: dict[tuple[str, Kind], bool] = {}  # wanted node -> whether it is watched
        self.inbox: deque[Input] = deque()
        self.now_ms = 0
        self.forgets = False  # then each read looks for paths that nobody waits for
        self.loop = Loop(self._open, self.inbox.append)
        self.role = Role()
        self.loop.run_role(self.role)
        self.loop.step([], 0)
        self.session.link_up()

    def _open(self, sink: Callable[[StoreInput], None]) -> KazooStore:
        self.session = WatchingSession(self.server, CHROOT, sink, *self._limits)
        return KazooStore(self.session, b"\0\0\0\0")  # type: ignore[arg-type]

    @property
    def tracker(self) -> Tracker:
        """The loop's tracker."""
        return self.loop.tracker

    def absolute(self, path: str) -> str:
        """The full path on the server."""
        return self.session.absolute(path)

    def step(self, count: int = 0) -> None:
        """The loop takes this many inputs in one step, and does its work."""
        if self.forgets:
            self.session.watches._look_at = 0
        self.loop.step([self.inbox.popleft() for _ in range(min(count, len(self.inbox)))], self.now_ms)

    def does(self, action: Callable[[], None], count: int = 0) -> None:
        """The role does this in its next step, which takes this many inputs."""
        self.role.todo.append(action)
        self.step(count)

    def wants(
        self, path: str, kind: Kind, *, watch: bool = True, by_writes: bool = True, scope: str = "g", count: int = 0
    ) -> None:
        """The role wants a node."""
        self.wanted[path, kind] = watch
        self.does(lambda: self.tracker.want(path, kind, watch=watch, scope=scope, by_writes=by_writes), count)

    def commits(self, writes: Sequence[Write], lane: str = "g", count: int = 0) -> None:
        """The role sends a transaction."""
        self.does(lambda: self.loop.commit(Transaction(writes=tuple(writes)), None, self.now_ms, lane), count)

    @property
    def arrives(self) -> bool:
        """True when `deliver` has something to do."""
        return bool(self.server.answers) or self.session.dropped or not self.session.linked

    def deliver(self) -> None:
        """The next answer or event arrives; otherwise a dropped connection breaks, or a new one comes."""
        if self.server.answers:
            self.session.deliver()
        else:
            self.break_off()

    def break_off(self) -> None:
        """The connection breaks, or, if there is none, a new one comes."""
        if self.session.linked:
            self.session.link_down()
        else:
            self.session.link_up()

    def rest(self) -> None:
        """Let everything under way arrive, and let delayed reads be made."""
        for wait_ms in (0, UNREADABLE_MS):  # in two steps: a server that owes an answer would be left
            self.now_ms += wait_ms
            self.step()
            for _ in range(REST_STEPS):
                if self.inbox:
                    self.step(2)
                elif self.arrives:
                    self.deliver()
                elif self.server.requests:
                    self.server.step()
                else:
                    break
            else:
                raise AssertionError("the world does not come to rest")

    def prod(self) -> None:
        """Somebody changes every wanted node. Each change must be told."""
        for path, kind in self.wanted:
            at = self.absolute(path)
            self.server.apply([SetNode(at, b"prod", -1) if kind is Kind.DATA else CreateNode(at, sequential=True)])

    def wrong(self) -> list[str]:
        """Wanted nodes that the loop, at rest, does not know as they are."""
        aside = [key for key in self.wanted if self.tracker.put_aside(*key)]
        found = [f"{scope} is not clean" for scope in self.tracker.unclean()] if not aside else []
        for path, kind in self.wanted.keys() - aside:
            if self.wanted[path, kind] or key_of(self.absolute(path), kind) not in self.server.foreign:
                found += self._otherwise(path, kind)
        return found

    def _otherwise(self, path: str, kind: Kind) -> list[str]:
        absolute = self.absolute(path)
        node, known = self.server.nodes.get(absolute), self.role.known.get((path, kind))
        if known is None or (known.stat is None) != (node is None):
            return [f"{path} is {node}, known as {known}"]
        if node is None or known.stat is None:
            return []
        if kind is Kind.DATA:
            same = (known.stat.version, known.data) == (node.version, node.data)
            return [] if same and known.stat.czxid in (0, node.created) else [f"{path} is {node}, known as {known}"]
        there = (self.server.children(absolute), node.child_changes)
        was = (list(known.children), known.stat.child_changes)
        return [] if was == there else [f"the list of {path} is {there}, known as {was}"]
