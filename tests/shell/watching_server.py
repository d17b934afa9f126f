"""A small model of a ZooKeeper server and of one connection to it, below the real store, reads and watches.

It understands the requests of these parts. A server before 3.9 has one mode of watch for each path and session
(`coexist` False): an ordinary watch ends a watch that stays. Requests wait until the server takes them. Answers and
events wait until the client takes them.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zkcoord.shell.ports import Link, LinkChanged, StoreInput
from zkcoord.shell.zk import jute
from zkcoord.shell.zk.abilities import Abilities
from zkcoord.shell.zk.config import Address
from zkcoord.shell.zk.connection import CONNECTION_LOSS, MARSHALLING, Call
from zkcoord.shell.zk.jute import Event, Op
from zkcoord.shell.zk.session import Session
from zkcoord.shell.zk.watches import IDLE_MAX, UNAWAITED_MAX, Watches
from zkcoord.tree.snapshot import LIST, Kind
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write

NO_NODE, NO_AUTH, BAD_VERSION, EXISTS, NOT_EMPTY, THROTTLED = -101, -102, -103, -110, -111, -127
LATER = -2
"""The error of a write behind the one that was refused."""
ONCE, STAYS = "once", "stays"
TIMEOUT_MS = 10_000


class Stored(NamedTuple):
    """A node."""

    created: int  # czxid
    changed: int  # mzxid
    data: bytes = b""
    version: int = 0
    child_changes: int = 0
    sequence: int = 0


class Told(NamedTuple):
    """A watch's event on its way to the client."""

    event: Event
    path: str


class Reply(NamedTuple):
    """An answer on its way to the client."""

    call: Call
    error: int
    frame: bytes


class RefusedError(Exception):
    """A write that cannot be applied, with its error code."""


class WatchingServer:
    """Nodes, and the watches of one connection."""

    def __init__(self, *, coexist: bool) -> None:
        self.nodes = {"/": Stored(0, 0)}
        self.zxid = 0
        self.closed: set[str] = set()  # nodes that must not be read
        self.keeps = True  # False: it refuses watches that stay, like WatchManagerOptimized
        self.foreign: set[str] = set()  # keys of nodes that somebody else changed last
        self._coexist = coexist
        self.lost()

    def lost(self) -> None:
        """The connection breaks: everything under way is lost, and so are the watches."""
        self.requests: deque[Call] = deque()
        self.answers: deque[Told | Reply] = deque()
        self._of_data: dict[str, set[str]] = {}
        self._of_lists: dict[str, set[str]] = {}

    def children(self, path: str) -> list[str]:
        """The names of a node's children."""
        base = path.rstrip("/") + "/"
        return sorted(
            each.removeprefix(base)
            for each in self.nodes
            if each != "/" and each.startswith(base) and "/" not in each.removeprefix(base)
        )

    def apply(self, writes: Sequence[Write], *, own: bool = False) -> bytes:
        """Apply all writes and fire watches, or apply nothing. Returns the reply to this multi."""
        before, done = dict(self.nodes), b""
        changes: list[tuple[str, Event, str]] = []
        self.zxid += 1
        for place, write in enumerate(writes):
            try:
                done += self._write(write, changes)
            except RefusedError as error:
                self.nodes, self.zxid = before, self.zxid - 1
                codes = [0] * place + [error.args[0]] + [LATER] * (len(writes) - place - 1)
                parts = (jute.PART.pack(Op.ERROR, 0, code) + jute.INT.pack(code) for code in codes)
                return b"".join(parts) + jute.LAST_PART
        for where, event, path in changes:
            self._tell(where, event, path)
            keys = {LIST + path} if event is Event.CHILD else {path} if event is Event.CHANGED else {path, LIST + path}
            (self.foreign.difference_update if own else self.foreign.update)(keys)
        return done + jute.LAST_PART

    def _write(self, write: Write, changes: list[tuple[str, Event, str]]) -> bytes:
        """Apply one write, and return its part of the reply. `changes` gets the events to fire, for watches of data
        ("d") or of lists ("c")."""
        node = self.nodes.get(write.path)
        if isinstance(write, CreateNode):
            return self._create(write, changes)
        if node is None:
            raise RefusedError(NO_NODE)
        if write.version not in (-1, node.version):
            raise RefusedError(BAD_VERSION)
        if isinstance(write, CheckNode):
            return jute.PART.pack(Op.CHECK, 0, 0)
        if isinstance(write, SetNode):
            node = node._replace(version=node.version + 1, changed=self.zxid, data=write.data)
            self.nodes[write.path] = node
            changes.append(("d", Event.CHANGED, write.path))
            return jute.PART.pack(Op.SET_DATA, 0, 0) + _stat(node)
        if self.children(write.path):
            raise RefusedError(NOT_EMPTY)
        del self.nodes[write.path]
        changes.append(("dc", Event.DELETED, write.path))
        self._child_changed(write.path.rpartition("/")[0] or "/", 0, changes)
        return jute.PART.pack(Op.DELETE, 0, 0)

    def _create(self, write: CreateNode, changes: list[tuple[str, Event, str]]) -> bytes:
        parent = write.path if write.sequential else write.path.rpartition("/")[0] or "/"
        above = self.nodes.get(parent)
        if above is None:
            raise RefusedError(NO_NODE)
        path = f"{parent.rstrip('/')}/{above.sequence:010}" if write.sequential else write.path
        if path in self.nodes:
            raise RefusedError(EXISTS)
        self.nodes[path] = Stored(self.zxid, self.zxid, write.data)
        changes.append(("d", Event.CREATED, path))
        self._child_changed(parent, 1, changes)
        return jute.PART.pack(Op.CREATE, 0, 0) + jute.text(path)

    def _child_changed(self, path: str, created: int, changes: list[tuple[str, Event, str]]) -> None:
        node = self.nodes[path]
        self.nodes[path] = node._replace(child_changes=node.child_changes + 1, sequence=node.sequence + created)
        changes.append(("c", Event.CHILD, path))

    def _tell(self, where: str, event: Event, path: str) -> None:
        tables = [self._of_data] if "d" in where else []
        tables += [self._of_lists] if "c" in where else []
        modes = [table[path] for table in tables if table.get(path)]
        for each in modes:
            each.discard(ONCE)
        if modes:
            self.answers.append(Told(event, path))

    def _add(self, table: dict[str, set[str]], path: str, mode: str) -> None:
        modes = table.setdefault(path, set())
        if not self._coexist:
            modes.clear()
        modes.add(mode)

    def step(self, *, throttles: bool = False) -> None:
        """Take the oldest request, or (`throttles`) turn it away."""
        request = self.requests.popleft()
        error, body = (THROTTLED, b"") if throttles else self._answer(request.type, request.body)
        self.answers.append(Reply(request, error, jute.REPLY.pack(1, self.zxid, error) + body))

    def _answer(self, op: int, body: bytes) -> tuple[int, bytes]:
        if op == Op.MULTI_READ:
            return 0, self._multi_read(body)
        if op == Op.MULTI:
            return 0, self.apply(_writes(body), own=True)
        if op == Op.SET_WATCHES:
            self._set_watches(body)
            return 0, b""
        path, offset = jute.read_text(body, 0)
        if op == Op.SYNC:
            return 0, jute.text(path)
        if op == Op.ADD_WATCH:
            if not self.keeps:
                return MARSHALLING, b""
            for table in (self._of_data, self._of_lists):
                self._add(table, path, STAYS)
        elif op == Op.REMOVE_WATCHES:
            for table in (self._of_data, self._of_lists):
                table.pop(path, None)
        else:
            return self._read(op, path, watch=body[offset] == 1)
        return 0, b""

    def _read(self, op: int, path: str, *, watch: bool) -> tuple[int, bytes]:
        lists = op == Op.GET_CHILDREN
        error, body = self._one(path, Kind.CHILDREN if lists else Kind.DATA)
        if op == Op.EXISTS:
            error, body = (0, _stat(self.nodes[path])) if path in self.nodes else (NO_NODE, b"")
        if watch and (not error or op == Op.EXISTS):
            self._add(self._of_lists if lists else self._of_data, path, ONCE)
        return error, body

    def _one(self, path: str, kind: Kind) -> tuple[int, bytes]:
        node = self.nodes.get(path)
        if node is None:
            return NO_NODE, b""
        if path in self.closed:
            return NO_AUTH, b""
        if kind is Kind.DATA:
            return 0, jute.buffer(node.data) + _stat(node)
        names = self.children(path)
        return 0, jute.INT.pack(len(names)) + b"".join(map(jute.text, names)) + _stat(node)

    def _multi_read(self, body: bytes) -> bytes:
        found, offset = b"", 0
        while True:
            op, done, _ = jute.PART.unpack_from(body, offset)
            offset += jute.PART.size
            if done:
                return found + jute.LAST_PART
            path, offset = jute.read_text(body, offset)
            offset += 1
            error, text = self._one(path, Kind.CHILDREN if op == Op.CHILDREN else Kind.DATA)
            if op == Op.CHILDREN and not error:
                text = text[: -jute.STAT.size]
            found += jute.PART.pack(Op.ERROR if error else op, 0, error)
            found += jute.INT.pack(error) if error else text

    def _set_watches(self, body: bytes) -> None:
        (zxid,), offset = struct.unpack_from("!q", body), 8
        there, offset = _texts(body, offset)
        missing, offset = _texts(body, offset)
        for path in there:
            node = self.nodes.get(path)
            if node is None or node.changed > zxid:
                self.answers.append(Told(Event.DELETED if node is None else Event.CHANGED, path))
            else:
                self._add(self._of_data, path, ONCE)
        for path in missing:
            if path in self.nodes:
                self.answers.append(Told(Event.CREATED, path))
            else:
                self._add(self._of_data, path, ONCE)


def _writes(body: bytes) -> list[Write]:
    """Decode a multi."""
    found: list[Write] = []
    offset = 0
    while True:
        op, done, _ = jute.PART.unpack_from(body, offset)
        offset += jute.PART.size
        if done:
            return found
        path, offset = jute.read_text(body, offset)
        data = b""
        if op in (Op.CREATE, Op.SET_DATA):
            data, offset = jute.read_buffer(body, offset)
        if op == Op.CREATE:
            (count,), offset = jute.INT.unpack_from(body, offset), offset + jute.INT.size
            for _ in range(count):
                _, offset = jute.read_text(body, offset + jute.INT.size)
                _, offset = jute.read_text(body, offset)
        (number,), offset = jute.INT.unpack_from(body, offset), offset + jute.INT.size
        if op == Op.CREATE:
            sequential = number & 2 == 2
            found.append(CreateNode(path[:-1] or "/" if sequential else path, data, sequential=sequential))
        elif op == Op.SET_DATA:
            found.append(SetNode(path, data, number))
        else:
            found.append((DeleteNode if op == Op.DELETE else CheckNode)(path, number))


def _stat(node: Stored) -> bytes:
    return jute.STAT.pack(node.created, node.changed, 0, 0, node.version, node.child_changes, 0, 0, 0, 0, 0)


def _texts(body: bytes, offset: int) -> tuple[list[str], int]:
    (count,), found = jute.INT.unpack_from(body, offset), []
    offset += jute.INT.size
    for _ in range(count):
        text, offset = jute.read_text(body, offset)
        found.append(text)
    return found, offset


class WatchingSession:
    """The part of a session that `KazooStore` uses. As far as possible it is taken from the real session."""

    absolute = Session.absolute
    fired = Session.fired
    keeps_watches = Session.keeps_watches
    no_kept_watches = Session.no_kept_watches
    no_multi_read = Session.no_multi_read

    def __init__(
        self,
        server: WatchingServer,
        chroot: str,
        sink: Callable[[StoreInput], None],
        idle_max: int = IDLE_MAX,
        unawaited_max: int = UNAWAITED_MAX,
    ) -> None:
        self._limits = idle_max, unawaited_max
        self.address = Address((("model", 2181),), chroot)
        self.abilities = Abilities()
        self.multi_read: bool | None = True
        self.watches = Watches(threading.RLock(), *self._limits)
        self.post = sink
        self.linked = False
        self.dropped = False  # the connection is about to break
        self._server = server
        self._sent: deque[Call] = deque()  # requests without an answer

    def send(self, make: Callable[[], Sequence[Call]]) -> bool:
        """Send the calls that `make` returns."""
        if self.linked:
            calls = make()
            self._sent.extend(calls)
            self._server.requests.extend(calls)
        return self.linked

    def link_up(self) -> None:
        """A connection comes."""
        self.linked, self.dropped = True, False
        self.post(LinkChanged(Link.CONNECTED, 1, TIMEOUT_MS))

    def link_down(self) -> None:
        """The connection breaks."""
        self.linked = False
        self.watches = Watches(threading.RLock(), *self._limits)
        self._server.lost()
        self.post(LinkChanged(Link.SUSPENDED, 1, TIMEOUT_MS))
        sent, self._sent = list(self._sent), deque()
        for call in sent:
            call.answer(CONNECTION_LOSS, b"", 0)

    def drop(self) -> None:
        """Like `Session.drop`."""
        self.dropped = True

    def deliver(self) -> None:
        """Deliver the oldest answer or event."""
        match self._server.answers.popleft():
            case Told(event, path):
                self.fired(event, path)
            case Reply(call, error, frame):
                assert self._sent.popleft() is call
                call.answer(error, frame, jute.REPLY.size)
