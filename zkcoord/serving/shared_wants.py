"""Wants of a table for nodes that another part of the same loop may follow, too. (The tracker knows each node once.)"""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import Kind


class SharedWants:
    """Passes wants on to the tracker. A shared node stays wanted when the table stops wanting it."""

    def __init__(self, tracker: Tracker, shared: Callable[[str], bool]) -> None:
        """`shared(path)` returns True if another part follows this node for as long as the table exists."""
        self._tracker, self._shared = tracker, shared

    def want(self, path: str, kind: Kind = Kind.DATA, *, watch: bool = False, scope: str = "") -> None:
        """Want the node. A shared node is read again, since the tracker may have read it before."""
        self._tracker.want(path, kind, watch=watch, scope=scope)
        if self._shared(path):
            self._tracker.touch(path, kind)

    def unwant(self, path: str, kind: Kind = Kind.DATA) -> None:
        """Stop wanting the node, unless another part follows it."""
        if not self._shared(path):
            self._tracker.unwant(path, kind)
