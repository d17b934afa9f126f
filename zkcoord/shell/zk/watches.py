"""Watches of one connection: which are armed, and which the server keeps.

A watch of ZooKeeper reports one change. To learn of the next one, the node must be read again with a watch. So when a
node is read with a watch for the second time, the server is asked for a persistent watch (`addWatch`, servers 3.6 and
later, ZOOKEEPER-1416). From then on such reads are plain, and many of them travel in one multi-read. Its events are
passed on like those of an ordinary watch: only one since each read.

The server has one mode for each path and session: a read with an ordinary watch would end a persistent one. So a path
with a persistent watch is only read plainly.

A persistent watch reports every change, also those between an event and the next read. Old consumers create and delete
a topic's claims one by one, so each member would be told of thousands. Such a path is read with ordinary watches again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from zkcoord.shell.zk.jute import Event
from zkcoord.tree.snapshot import Kind

IDLE_MAX = 256
"""Number of remembered paths at which paths are forgotten that nobody has read since their last event."""

UNAWAITED_MAX = 32
"""Number of events between two reads, for which nobody waits, beyond which a persistent watch is given up."""

_ENDED = {
    Event.CREATED: {Kind.DATA, Kind.CHILDREN},
    Event.DELETED: {Kind.DATA, Kind.CHILDREN},
    Event.CHANGED: {Kind.DATA},
    Event.CHILD: {Kind.CHILDREN},
}
"""Event -> what must be read again after it."""


class _Path:
    __slots__ = ("armed", "asked", "changes", "kept", "loud", "unawaited")

    def __init__(self) -> None:
        self.armed: set[Kind] = set()  # the kinds for which somebody waits
        self.asked, self.kept = 0, False
        self.loud = False  # True once a persistent watch was given up
        self.unawaited = 0  # number of events since the last read for which nobody waited
        self.changes = 0  # number of events that showed another list, or another node

    @property
    def idle(self) -> bool:
        return not self.armed and not self.asked


class Awaited(NamedTuple):
    """A list of children that a transaction changes."""

    path: str
    known: _Path
    changes: int  # its `changes` after the transaction, if nobody else changes it


class Watches:
    """The watches of one connection. `Session.send` holds the lock, so that `ask` and the sending stay together."""

    def __init__(
        self, lock: AbstractContextManager[object], idle_max: int = IDLE_MAX, unawaited_max: int = UNAWAITED_MAX
    ) -> None:
        self._lock, self._idle_max, self._unawaited_max = lock, idle_max, unawaited_max
        self._paths: dict[str, _Path] = {}
        self._look_at = idle_max  # number of paths at which idle ones are looked for

    def kept(self, path: str) -> bool:
        """True when the server keeps a watch on this path."""
        known = self._paths.get(path)
        return known is not None and known.kept

    def give_up(self, path: str) -> bool:
        """Called before `ask`. Returns True if the server must drop its watch on this path, since too many of its
        events are for nobody."""
        known = self._paths.get(path)
        if known is None:
            return False
        loud, known.unawaited = known.kept and known.idle and known.unawaited > self._unawaited_max, 0
        if loud:
            known.kept, known.loud = False, True
        return loud

    def ask(self, path: str, *, keep: bool) -> bool:
        """Note that a watched read is about to be sent. Returns True if the server must be asked for a persistent
        watch: it knows them (`keep`), and the path was read with a watch before."""
        known = self._paths.get(path)
        if known is None:
            known = self._paths[path] = _Path()
            keep = False
        known.asked += 1
        if known.kept or known.loud or not keep:
            return False
        known.kept = True
        return True

    def answered(self, path: str, kind: Kind) -> None:
        """Take in the answer to a watched read: the next event counts."""
        with self._lock:
            if (known := self._paths.get(path)) is not None:
                known.asked -= 1
                known.armed.add(kind)

    def refused(self, path: str) -> None:
        """Take in that a watched read was refused: it waits for no event."""
        with self._lock:
            if (known := self._paths.get(path)) is not None:
                known.asked -= 1

    def fired(self, event: Event, path: str) -> bool:
        """True when somebody waits for this event. For an ordinary watch that is always so, since the server reports
        only what it was asked for."""
        with self._lock:
            known = self._paths.get(path)
            if known is None:
                return True
            known.changes += event is not Event.CHANGED
            waited = not known.kept or bool(known.armed & _ENDED[event])
            known.armed -= _ENDED[event]
            known.unawaited += not waited
            return waited

    def awaited(self, lists: Mapping[str, int]) -> list[Awaited]:
        """Those of these lists whose next change is reported to the session, each with its count of changes after a
        transaction that is about to be sent. `lists` maps a list to how often the transaction changes it."""
        known = ((path, self._paths.get(path), changes) for path, changes in lists.items())
        return [
            Awaited(path, at, at.changes + changes)
            for path, at, changes in known
            if at is not None and at.kept and Kind.CHILDREN in at.armed
        ]

    def alone(self, awaited: Iterable[Awaited]) -> tuple[str, ...]:
        """Those lists that only the transaction has changed, which is answered now. The next event counts, as after a
        read."""
        with self._lock:
            found = [each for each in awaited if each.known.changes == each.changes]
            found = [each for each in found if self._paths.get(each.path) is each.known]
            for each in found:
                each.known.armed.add(Kind.CHILDREN)
        return tuple(each.path for each in found)

    def idle(self) -> list[str]:
        """If there are many paths, forget those for which nobody waits. Returns the paths whose watches the server must
        drop."""
        if len(self._paths) < self._look_at:
            return []
        idle = [path for path, known in self._paths.items() if known.idle]
        kept = [path for path in idle if self._paths.pop(path).kept]
        self._look_at = max(self._idle_max, 2 * len(self._paths))
        return kept
