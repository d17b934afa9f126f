"""`SimStore`: one simulated client session behind `TreeStore`, and the connection it has at the moment.

A request waits in the connection until the scheduler executes it at the replica; its reply waits there, in server
order with the watch events, until the scheduler delivers it. What is already at the client (`local`) is delivered
first. When a connection breaks, some of what was sent may still be executed (`ghosts`) until the session reconnects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter
from typing import TypeVar

from tests.sim.heartbeats import listen
from tests.sim.network import Network, Process
from tests.sim.wire import CLOSE, COMMIT, READ, SYNC, Ask, Reply, Wire
from tests.sim.zookeeper import REQUEST_BYTES_MAX, TICK_MS, Result, Session
from zkcoord.shell.ports import (
    CommitDone,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    StoreInput,
    SyncDone,
    Unreadable,
    too_large,
)
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import SetNode, Transaction

RUN, LOSE_REQUEST, LOSE_REPLY = "run", "lose request", "lose reply"


REQUESTS_MAX = 3
"""A client whose server keeps up has no more that wait: a lease lasts no longer than four of its renewals."""

NUMBERS = count()
NUMBER = attrgetter("number")
T = TypeVar("T")


class SimStore:
    """A `TreeStore` whose every step the scheduler chooses. It reports nothing after LOST or `close`."""

    def __init__(self, network: Network, process: Process, sink: Callable[[StoreInput], None], timeout_ms: int) -> None:
        self.network = network
        self.process = process
        self.number = next(NUMBERS)  # by the order of creation
        self.client = process.client
        self.timeout_ms = timeout_ms
        self.session: Session | None = None
        self.wire: Wire | None = None
        self.over = False  # lost, closed or abandoned: it takes no more inputs
        self.seen_zxid = 0
        self.local: deque[StoreInput] = deque()
        self.ghosts: deque[Ask] = deque()
        self._ghost_wire: Wire | None = None
        self.flaps: deque[int] = deque()  # each of the next connections breaks after this many answers
        self._pending: dict[Ask, None] = {}
        self._sink = sink
        self._closing = False
        self._lost = False  # LOST is on its way to the process
        self._retry()

    # -- the port

    def read(self, token: int, reads: Sequence[Read]) -> None:
        """Send a read of these nodes."""
        self._send(Ask(READ, token, tuple(reads)))

    def commit(self, token: int, transaction: Transaction) -> None:
        """Send one multi. One that is too large is refused here."""
        if transaction.payload_bytes() > REQUEST_BYTES_MAX:
            self.local.append(too_large(token, transaction))
            self.stir()
        else:
            self._send(Ask(COMMIT, token, transaction))

    def sync(self, token: int) -> None:
        """Send a sync."""
        self._send(Ask(SYNC, token))

    def drop_connection(self) -> None:
        """Break the connection from the client's side."""
        if not self.over and self.wire is not None:
            self.break_wire("dropped by its client")

    def close(self) -> None:
        """End the session: at once if the connection is open, else at its timeout."""
        if self.over or self._closing:
            return
        self._closing = True
        self.local.clear()
        if self.wire is not None:
            self.wire.ask(Ask(CLOSE, -1))
        else:
            self._finish()

    def _send(self, ask: Ask) -> None:
        if self.over or self._closing or self._lost:
            return
        if self.wire is None:
            self.local.append(_unread(ask))  # without a connection the request fails: it is not kept for a later one
            self.stir()
        else:
            self._pending[ask] = None
            self.wire.sent_ms = self.network.ensemble.now_ms
            self.wire.ask(ask)

    def stir(self) -> None:
        """The store may have something to execute or deliver from now on."""
        self.network.busy[self] = None

    # -- the scheduler's steps

    def can_execute(self) -> bool:
        """True when the next request can be executed at its replica."""
        wire = self.wire
        if wire is None or not wire.up or not wire.requests:
            return False
        return not wire.replica.cut or wire.requests[0].kind is READ

    def can_deliver(self) -> bool:
        """True when there is an input for the process and it can be delivered."""
        if self.local:
            return True
        wire = self.wire
        return wire is not None and wire.down and bool(wire.replies) and not self._closing

    @property
    def reads_next(self) -> bool:
        """True when the next request is a read."""
        return self.wire is not None and self.wire.requests[0].kind is READ

    @property
    def behind(self) -> bool:
        """True when its server has too many requests waiting."""
        return self.wire is not None and len(self.wire.requests) > REQUESTS_MAX

    def execute(self) -> None:
        """Execute the next request (or a part of a large read)."""
        wire = self.wire
        assert wire is not None
        ask = wire.requests[0]
        if not wire.session.alive and not wire.replica.cut:
            self.break_wire("session expired at the server")
            return
        session, now_ms = wire.session, self.network.ensemble.now_ms
        if session.expires_at_ms is not None and not wire.replica.cut:  # no heartbeats arrive, but this request did
            session.expires_at_ms = max(session.expires_at_ms, now_ms + session.timeout_ms)
        if ask.kind is READ:
            self._execute_read(wire, ask)
        elif ask.kind is COMMIT:
            self._execute_commit(wire, ask)
        elif ask.kind is SYNC:
            wire.requests.popleft()
            self.network.ensemble.catch_up(wire.replica)
            self._answer(wire, ask, SyncDone(ask.token, True))
        else:
            wire.requests.popleft()
            self.network.trace(self.client, "closes its session")
            self.network.ensemble.end_session(wire.session, "close")
            self._finish()

    def execute_lone_sync(self) -> bool:
        """Execute and answer a sync at once, if nothing else is on its way here. True when the answer was delivered."""
        wire = self.wire
        if wire is None or len(wire.requests) != 1 or wire.requests[0].kind is not SYNC:
            return False
        if self.local or wire.replies or self.ghosts or not (self.can_execute() and wire.whole):
            return False
        self.execute()
        if not self.can_deliver():
            return False
        self.deliver()
        return True

    def execute_ghost(self) -> None:
        """Execute a request of a broken connection. Nobody gets the answer."""
        ask, wire = self.ghosts.popleft(), self._ghost_wire
        if wire is None or not wire.session.alive or wire.replica.cut:
            self.ghosts.clear()
            return
        self.network.trace(self.client, "ghost of", ask.kind)
        if ask.kind is CLOSE:
            self.network.ensemble.end_session(wire.session, "close")
        else:
            self.network.after_write(self, ask, self.network.ensemble.submit(wire.session, ask.payload.writes))

    def deliver(self) -> None:
        """Hand the oldest input to the process."""
        if self.local:
            item = self.local.popleft()
            if isinstance(item, LinkChanged) and item.link is Link.LOST:
                self._finish()
            self._sink(item)
            return
        assert self.wire is not None
        item, ask, zxid = self.wire.replies.popleft()
        if zxid > self.seen_zxid:
            self.seen_zxid = zxid
        if ask is not None:
            self._pending.pop(ask, None)
        self._sink(item)
        if ask is not None:
            self.network.replied(self, ask)
            if self.wire is not None and self.wire.answered():
                self.break_wire("a flap")

    def _answer(self, wire: Wire, ask: Ask, item: StoreInput) -> None:
        wire.session.heard_ms = self.network.ensemble.now_ms
        wire.reply(Reply(item, ask, wire.replica.zxid))

    def _execute_read(self, wire: Wire, ask: Ask) -> None:
        """Answer the request, or a part of it. A change between two parts is reported before the whole answer.

        The watch of a missing node is left by a second question, which waits behind the requests of the meantime.
        """
        count = self.network.torn(len(ask.waiting))
        for place in ask.waiting[:count]:
            read = ask.payload[place]
            if read.path in self.network.ensemble.closed:
                ask.unreadable.append(Unreadable(read.path, read.kind, "NoAuth: an operator must grant READ"))
            elif read.watch and ask.missing is not None and read.path not in wire.replica.nodes:
                ask.missing.append(place)
            else:
                ask.nodes[place] = wire.replica.answer(read, wire)
        del ask.waiting[:count]
        if ask.waiting:
            return
        wire.requests.popleft()
        if ask.missing:
            ask.waiting, ask.missing = ask.missing, None
            wire.ask(ask)
        else:
            nodes = tuple(ask.nodes[place] for place in sorted(ask.nodes))
            self._answer(wire, ask, ReadDone(ask.token, nodes, tuple(ask.unreadable)))

    def _execute_commit(self, wire: Wire, ask: Ask) -> None:
        fate = self.network.before_write(self, ask.payload)
        if self.wire is not wire:
            return  # the process was killed right before the write
        if fate is LOSE_REQUEST:
            wire.requests.clear()
            self.break_wire("request lost")
            self.network.after_write(self, ask, Result(0, reason="Lost"))
            return
        wire.requests.popleft()
        ensemble, replica = self.network.ensemble, wire.replica
        ensemble.catch_up(replica)
        watches = replica.child_watches if wire.keeps_watches else {}
        lists = [path for path in ask.payload.listings() if wire in watches.get(path, ())]
        result = ensemble.submit(wire.session, ask.payload.writes)
        ensemble.catch_up(replica, result.zxid)
        if result.reason:
            done = CommitDone(ask.token, Outcome.REFUSED, (), result.failed_at, result.reason)
        else:
            sets = SetNode in map(type, ask.payload.writes)
            alone = tuple(path for path in lists if path in replica.nodes)
            for path in alone:
                replica.answer(Read(path, Kind.CHILDREN, watch=True), wire)
            zxid, versions = result.zxid if sets else 0, result.versions
            done = CommitDone(ask.token, Outcome.COMMITTED, versions, made=result.made, zxid=zxid, alone=alone)
        if fate is LOSE_REPLY:
            self.break_wire("reply lost")
        else:
            self._answer(wire, ask, done)
        self.network.after_write(self, ask, result)

    # -- the connection

    def connect(self) -> None:
        """Find a server: open a new session, continue the same one, or report LOST."""
        if self.over or self._lost or self.wire is not None:
            return
        process, ensemble = self.process, self.network.ensemble
        servers = [r for r in ensemble.replicas if not r.cut and r.zxid >= self.seen_zxid]
        if process.paused or process.cut or not ensemble.serving or not servers:
            self._retry()
            return
        replica = servers[int(self.network.rng.random() * len(servers))]
        self.ghosts.clear()  # the leader refuses requests of an earlier connection
        session = self.session
        if session is None:
            session = self.session = ensemble.open_session(process.name, self.client, self.timeout_ms)
            ensemble.catch_up(replica, ensemble.zxid)
        elif not session.alive:
            self.network.trace(self.client, "learns that its session is over")
            self._lost = True
            self.local.append(LinkChanged(Link.LOST, session.id, session.timeout_ms))
            self.stir()
            return
        session.timeout_ms = ensemble.negotiated_ms(self.timeout_ms)
        self.wire = wire = Wire(replica, session, self)
        wire.sent_ms, wire.answers_left = ensemble.now_ms, self.flaps.popleft() if self.flaps else 0
        wire.reply(Reply(LinkChanged(Link.CONNECTED, session.id, session.timeout_ms), None, 0))
        self.network.trace(self.client, "connects to", replica.name)
        self.refresh()

    def break_wire(self, why: str, *, server_side: bool = True) -> None:
        """End the connection. Requests without an answer come back as unknown. Some of those that were sent may still
        be executed."""
        wire, rng = self.wire, self.network.rng
        if wire is None:
            return
        self.network.trace(self.client, "connection breaks:", why)
        self.wire = None
        wire.open = False
        self._keep_some_replies(wire)
        sent = int(rng.random() * (len(wire.requests) + 1)) if wire.up and server_side else 0
        self.ghosts = deque(ask for ask in list(wire.requests)[:sent] if ask.kind in (COMMIT, CLOSE))
        self._ghost_wire = wire
        if self._closing:
            self._finish(keep_ghosts=True)
        elif not self.over:
            suspended = LinkChanged(Link.SUSPENDED, wire.session.id, wire.session.timeout_ms)
            self.local.extend([suspended, *(_unread(ask) for ask in self._pending)])
            self._pending.clear()
            self._retry()
        self._starve(wire.session)
        self.stir()

    def abandon(self) -> None:
        """The process is gone: it sends and hears nothing more, and its session ends by its timeout."""
        self._closing = True
        if self.wire is not None:
            self.break_wire("process gone")
        self._finish(keep_ghosts=True)

    def refresh(self) -> None:
        """Keep the session alive if its heartbeats arrive now; otherwise let its timeout run."""
        wire = self.wire
        if wire is None:
            return
        if not wire.session.alive:
            if wire.up and not wire.replica.cut:
                self.break_wire("session expired at the server")
            return
        reached = wire.up and not self.process.paused and not wire.replica.cut and self.network.ensemble.serving
        if reached:
            wire.session.expires_at_ms = None
        else:
            self._starve(wire.session)
        listen(self, wire)

    def _starve(self, session: Session) -> None:
        if session.expires_at_ms is None:
            now_ms, rng = self.network.ensemble.now_ms, self.network.rng
            heard_ms = max(session.heard_ms, now_ms - int(rng.random() * session.timeout_ms / 3))
            expires_at_ms = heard_ms + session.timeout_ms + int(rng.random() * TICK_MS)
            self.network.ensemble.starve(session, expires_at_ms)

    def _keep_some_replies(self, wire: Wire) -> None:
        """Some replies are already in the client's buffer, and are delivered first. The other replies are lost."""
        kept = int(self.network.rng.random() * (len(wire.replies) + 1)) if wire.down else 0
        for item, ask, zxid in list(wire.replies)[:kept]:
            self.seen_zxid = max(self.seen_zxid, zxid)
            if ask is not None:
                self._pending.pop(ask, None)
            self.local.append(item)

    def _retry(self) -> None:
        network = self.network
        network.at(network.ensemble.now_ms + network.reconnect_delay_ms(), self.connect)

    def _finish(self, *, keep_ghosts: bool = False) -> None:
        self.over = True
        if self.wire is not None:
            self.wire.open = False
            self.wire = None
        self.local.clear()
        self._pending.clear()
        if not keep_ghosts:
            self.ghosts.clear()


def one_of(choices: list[T], draw: float) -> T:
    """The store (or process) that `draw` (from 0 to 1) chooses, independent of the order of the list."""
    if len(choices) == 1:
        return choices[0]
    choices.sort(key=NUMBER)
    return choices[int(draw * len(choices))]


def _unread(ask: Ask) -> StoreInput:
    """The outcome of a request without an answer when its connection breaks."""
    if ask.kind is READ:
        return ReadDone(ask.token, None)
    if ask.kind is SYNC:
        return SyncDone(ask.token, False)
    return CommitDone(ask.token, Outcome.UNKNOWN)
