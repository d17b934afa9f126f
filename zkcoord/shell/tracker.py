"""Which nodes a loop wants to know, and which of them are dirty, being read, or clean.

The rule: a scope (a group, or the whole tree) is decided on only while none of its nodes is dirty or being read. Every
path that an own transaction touches is dirty from its sending on; a watch event makes its path dirty; a broken link
makes everything dirty. An event that arrives while the same node is being read was caused before that read (the ports
keep the order), so the read covers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zkcoord.tree.snapshot import Kind, Node, Read

READS_PER_REQUEST_MAX = 2_000
"""Bounds what one step asks for after a reconnection (F30); the rest goes with the next step."""


@dataclass(slots=True)
class _Want:
    read: Read
    scope: str
    reading: int = 0  # the token of the request under way, 0: none
    dirty: bool = True  # to be read (again, when `reading`)


class Tracker:
    """The wants of one session. Not thread safe: it belongs to its loop."""

    def __init__(self) -> None:
        self._wants: dict[tuple[str, Kind], _Want] = {}
        self._queue: dict[tuple[str, Kind], None] = {}  # invariant: exactly the wants that are dirty and not reading
        self._unclean: dict[str, int] = {}  # invariant: scope -> wants that are dirty or reading, never 0

    def want(self, path: str, kind: Kind = Kind.DATA, *, watch: bool = False, scope: str = "") -> None:
        """Know this node from now on; asked for again it is read again only when something makes it dirty."""
        key = (path, kind)
        if key in self._wants:
            return
        self._wants[key] = _Want(Read(path, kind, watch), scope)
        self._queue[key] = None
        self._count(scope, 1)

    def unwant(self, path: str, kind: Kind = Kind.DATA) -> None:
        """Forget this node; an answer under way is dropped."""
        want = self._wants.pop((path, kind), None)
        if want is None:
            return
        self._queue.pop((path, kind), None)
        if want.dirty or want.reading:
            self._count(want.scope, -1)

    def unwant_scope(self, scope: str) -> None:
        """Forget every node of a scope."""
        for path, kind in [key for key, want in self._wants.items() if want.scope == scope]:
            self.unwant(path, kind)

    def wanted(self, path: str, kind: Kind = Kind.DATA) -> bool:
        """True while the node is wanted."""
        return (path, kind) in self._wants

    def touch(self, path: str, kind: Kind | None = None) -> None:
        """Make a path dirty: an own write was sent, or another node says that this one changed."""
        for each in (kind,) if kind else (Kind.DATA, Kind.CHILDREN):
            self._soil((path, each), again=True)

    def fired(self, path: str, *, data: bool, children: bool) -> None:
        """A watch event came."""
        if data:
            self._soil((path, Kind.DATA), again=False)
        if children:
            self._soil((path, Kind.CHILDREN), again=False)

    def touch_all(self) -> None:
        """The link broke: every watch is lost, every answer under way will not come."""
        for key, want in self._wants.items():
            if not (want.dirty or want.reading):
                self._count(want.scope, 1)
            want.reading = 0
            want.dirty = True
            self._queue[key] = None

    def take(self, token: int) -> list[Read]:
        """The reads to send as request `token` (not 0), oldest want first, at most READS_PER_REQUEST_MAX."""
        keys = list(self._queue)[:READS_PER_REQUEST_MAX]
        for key in keys:
            del self._queue[key]
            want = self._wants[key]
            want.dirty, want.reading = False, token
        return [self._wants[key].read for key in keys]

    def answered(self, token: int, nodes: Iterable[Node]) -> list[Node]:
        """Take in the answers to request `token`; returns those still wanted and not dirty again, in their order."""
        fresh = []
        for node in nodes:
            key = (node.path, node.kind)
            want = self._wants.get(key)
            if want is None or want.reading != token:
                continue
            want.reading = 0
            if want.dirty:
                self._queue[key] = None
            else:
                self._count(want.scope, -1)
                fresh.append(node)
        return fresh

    def clean(self, scope: str) -> bool:
        """True when nothing of this scope is dirty or being read."""
        return scope not in self._unclean

    def _soil(self, key: tuple[str, Kind], *, again: bool) -> None:
        want = self._wants.get(key)
        if want is None or want.dirty or (want.reading and not again):
            return
        if not want.reading:
            self._count(want.scope, 1)
            self._queue[key] = None
        want.dirty = True

    def _count(self, scope: str, change: int) -> None:
        count = self._unclean.get(scope, 0) + change
        if count:
            self._unclean[scope] = count
        else:
            del self._unclean[scope]
