"""I0Itec's ZkClient, which the old consumers use, over a simulated session: calls block, and continue in the next
session.

A call that finds no connection, or whose answer is lost, is made again until it is answered, in the next session if
there is one (`retryUntilConnected`). Therefore a create that was applied, but whose reply was lost, finds its own node.
One event thread reads a node again after its watch fired, leaves a new watch, and calls the listener. After a
reconnection in the same session the watches are set again, and tell the changes of the meantime (Java's `SetWatches`).
A new session notifies all listeners.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.sim.blocking import Blocking, Call, Threads, Until
from tests.sim.process import SimProcess
from zkcoord.shell.ports import (
    CommitDone,
    FromStore,
    Input,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    StoreInput,
    SyncDone,
    WatchFired,
)
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode, Transaction, Write

Mark = tuple[int, int] | None
"""Of a node as last read: another one means that it has changed (None: there was none)."""


class NodeExistsError(Exception):
    """ZkNodeExistsException."""


class NoNodeError(Exception):
    """ZkNoNodeException."""


class Listener(NamedTuple):
    """The function that the event thread calls when a node's data or children have changed."""

    kind: Kind
    changed: Callable[[Node], Blocking | None]


class ZkClient:
    """One client; `new_session` is called on the event thread after an expiry, in the new session."""

    def __init__(self, process: SimProcess, threads: Threads, new_session: Callable[[], Blocking]) -> None:
        self._process = process
        self._new_session = new_session
        self._listeners: dict[str, Listener] = {}
        self._marks: dict[str, Mark] = {}
        self._events: list[tuple[str | None, bool]] = []  # path (None: a new session), and if it may be unchanged
        self._sessions = 0
        self._linked = self.closed = False
        self._threads = threads
        self.session_id = 0  # of the newest session; 0: none yet
        self._open()
        threads.start("events", self.event_thread())

    def take(self, item: Input) -> None:
        """Take an input of the process; inputs from an earlier session's connection are ignored."""
        if not isinstance(item, FromStore) or item.session != self._sessions:
            return
        told: StoreInput = item.item
        if isinstance(told, (ReadDone, CommitDone, SyncDone)):
            self._threads.answer(told.token, told)
        elif isinstance(told, WatchFired):
            if told.path in self._listeners:
                self._events.append((told.path, False))
        elif isinstance(told, LinkChanged):
            self._take_link(told)

    def close(self) -> None:
        """End the session."""
        self.closed = True
        self.store.close()

    # -- calls that block

    def read(self, path: str) -> Blocking:
        """The node's data as text; NoNodeError. Leaves a watch where there is a listener."""
        node = yield from self._node(path, Kind.DATA)
        if not node.exists:
            raise NoNodeError(path)
        return node.data.decode()

    def read_or_none(self, path: str) -> Blocking:
        """The node's data as text, or None."""
        node = yield from self._node(path, Kind.DATA)
        return node.data.decode() if node.exists else None

    def children(self, path: str) -> Blocking:
        """The names of the children, sorted; NoNodeError. Leaves a watch where there is a listener."""
        node = yield from self._node(path, Kind.CHILDREN)
        if not node.exists:
            raise NoNodeError(path)
        return node.children

    def create(self, path: str, text: str, *, ephemeral: bool) -> Blocking:
        """Create a node, its missing parents first; NodeExistsError."""
        while True:
            reason = yield from self._write(CreateNode(path, text.encode(), ephemeral=ephemeral))
            if reason == "NodeExists":
                raise NodeExistsError(path)
            if reason != "NoNode":
                return
            with contextlib.suppress(NodeExistsError):
                yield from self.create(path.rpartition("/")[0], "", ephemeral=False)

    def put(self, path: str, text: str) -> Blocking:
        """Set a persistent node's data unconditionally, or create the node."""
        while (yield from self._write(SetNode(path, text.encode(), ANY_VERSION))) == "NoNode":
            try:
                yield from self.create(path, text, ephemeral=False)
            except NodeExistsError:
                continue
            return

    def delete(self, path: str) -> Blocking:
        """Delete a node unconditionally; do nothing when it is gone ("deleted during connection loss")."""
        yield from self._write(DeleteNode(path, ANY_VERSION))

    def owner_of(self, path: str) -> Blocking:
        """The session that made an ephemeral node; 0 when the node is gone."""
        node = yield from self._node(path, Kind.DATA)
        return node.stat.ephemeral_owner if node.exists else 0

    def subscribe(self, path: str, listener: Listener) -> Blocking:
        """Call the listener at each change from now on."""
        self._listeners[path] = listener
        return (yield from self._node(path, listener.kind))

    # -- one request, repeated until it is answered

    def _node(self, path: str, kind: Kind) -> Blocking:
        listener = self._listeners.get(path)
        watch = listener is not None and listener.kind is kind
        while True:
            yield Until(lambda: self._linked)
            done = yield Call(partial(self._ask, Read(path, kind, watch)))
            if done is not None and done.nodes is not None:
                break
        (node,) = done.nodes
        if watch:
            self._marks[path] = _mark(node)
        return node

    def _write(self, write: Write) -> Blocking:
        """Send a write until it is answered. Returns the name of its error, "" when it was applied."""
        while True:
            yield Until(lambda: self._linked)
            done = yield Call(partial(self._send, write))
            if done is not None and done.outcome is not Outcome.UNKNOWN:
                return done.reason

    def _ask(self, read: Read, token: int) -> None:
        self.store.read(token, (read,))

    def _send(self, write: Write, token: int) -> None:
        self.store.commit(token, Transaction(writes=(write,), why="old member"))

    # -- sessions and events

    def _open(self) -> None:
        self._sessions += 1
        number = self._sessions
        self.store = self._process.open_session(lambda item: self._process.inbox.put(FromStore(number, item)))

    def _take_link(self, told: LinkChanged) -> None:
        self._linked = told.link is Link.CONNECTED
        if told.link is Link.LOST and not self.closed:
            self._open()
            self._threads.lose_calls()
        elif self._linked and self.session_id == told.session_id:
            self._events += [(path, True) for path in self._listeners]
        elif self._linked:
            if self.session_id:
                self._events.append((None, False))
                self._events += [(path, False) for path in self._listeners]
            self.session_id = told.session_id

    def event_thread(self) -> Blocking:
        """Calls the listeners, one event after the other."""
        while True:
            yield Until(lambda: bool(self._events))
            path, may_be_nothing = self._events.pop(0)
            if path is None:
                yield from self._new_session()
                continue
            listener, before = self._listeners[path], self._marks.get(path)
            node = yield from self._node(path, listener.kind)
            if not may_be_nothing or _mark(node) != before:
                work = listener.changed(node)
                if work is not None:
                    yield from work


def _mark(node: Node) -> Mark:
    if node.stat is None:
        return None
    return node.stat.czxid, node.stat.version if node.kind is Kind.DATA else node.stat.child_changes
