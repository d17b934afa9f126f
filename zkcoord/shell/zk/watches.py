"""Watches of one connection: which are armed, and which the server keeps.

A watch of ZooKeeper tells of one change, and whoever wants to hear of the next one reads the node again with a watch.
So of a node that is read so for the second time, the server is asked for a watch that stays (`addWatch`, servers 3.6
and later, ZOOKEEPER-1416). From then on such reads are plain, and many of them travel in one multi-read. Events of it
are passed on as those of a watch that tells once: only what was read since the last event.

The server has one mode for each path and session: a read that left an ordinary watch would end one that stays. So a
path that is kept is only read plainly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from zkcoord.shell.zk.jute import Event
from zkcoord.tree.snapshot import Kind

IDLE_MAX = 256
"""So many paths are remembered at least before those that nobody has read since their last event are forgotten."""


_ENDED = {
    Event.CREATED: {Kind.DATA, Kind.CHILDREN},
    Event.DELETED: {Kind.DATA, Kind.CHILDREN},
    Event.CHANGED: {Kind.DATA},
    Event.CHILD: {Kind.CHILDREN},
}
"""What must be read again behind each event."""


class _Path:
    __slots__ = ("armed", "asked", "changes", "kept")

    def __init__(self) -> None:
        self.armed: set[Kind] = set()  # what somebody waits to hear of
        self.asked, self.kept = 0, False
        self.changes = 0  # events that told of another list, or of another node

    @property
    def idle(self) -> bool:
        return not self.armed and not self.asked


class Awaited(NamedTuple):
    """A list of children that a transaction changes."""

    path: str
    known: _Path
    changes: int  # of it behind the transaction, if nobody else changes it


class Watches:
    """Those of one connection. What is asked for and what is sent stay together: `Session.send` holds the lock."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._paths: dict[str, _Path] = {}
        self._look_at = IDLE_MAX  # so many paths: look for idle ones

    def kept(self, path: str) -> bool:
        """True when the server keeps a watch there."""
        known = self._paths.get(path)
        return known is not None and known.kept

    def ask(self, path: str, *, keep: bool) -> bool:
        """Note that a watched read is about to be sent. True when the server is to be asked to keep a watch: it can
        (`keep`), and the path was read so before."""
        known = self._paths.get(path)
        if known is None:
            known = self._paths[path] = _Path()
            keep = False
        known.asked += 1
        if known.kept or not keep:
            return False
        known.kept = True
        return True

    def answered(self, path: str, kind: Kind) -> None:
        """Take in that a watched read has its answer: the next event counts."""
        with self._lock:
            if (known := self._paths.get(path)) is not None:
                known.asked -= 1
                known.armed.add(kind)

    def refused(self, path: str) -> None:
        """Take in that a watched read was refused: it waits for nothing."""
        with self._lock:
            if (known := self._paths.get(path)) is not None:
                known.asked -= 1

    def fired(self, event: Event, path: str) -> bool:
        """True when somebody waits for this event. Of an ordinary watch that is always so: the server tells of nothing
        else than it was asked for."""
        with self._lock:
            known = self._paths.get(path)
            if known is None:
                return True
            known.changes += event is not Event.CHANGED
            waited = not known.kept or bool(known.armed & _ENDED[event])
            known.armed -= _ENDED[event]
            return waited

    def awaited(self, lists: Mapping[str, int]) -> list[Awaited]:
        """Those of these lists whose next change the session is told of, each with what a transaction that is about to
        be sent makes of it. `lists`: how often it changes each."""
        known = ((path, self._paths.get(path), changes) for path, changes in lists.items())
        return [
            Awaited(path, at, at.changes + changes)
            for path, at, changes in known
            if at is not None and at.kept and Kind.CHILDREN in at.armed
        ]

    def alone(self, awaited: Iterable[Awaited]) -> tuple[str, ...]:
        """Those lists that nothing else has changed than the transaction, which is answered now: the next event counts,
        as behind a read."""
        with self._lock:
            found = [each for each in awaited if each.known.changes == each.changes]
            found = [each for each in found if self._paths.get(each.path) is each.known]
            for each in found:
                each.known.armed.add(Kind.CHILDREN)
        return tuple(each.path for each in found)

    def idle(self) -> list[str]:
        """Forget the paths that nobody waits for, once there are many. Returns those that the server must not keep any
        more."""
        if len(self._paths) < self._look_at:
            return []
        idle = [path for path, known in self._paths.items() if known.idle]
        kept = [path for path in idle if self._paths.pop(path).kept]
        self._look_at = max(IDLE_MAX, 2 * len(self._paths))
        return kept
