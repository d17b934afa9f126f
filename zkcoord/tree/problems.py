"""The nodes of one group that cannot be parsed: path -> what is wrong, and who must act."""

from __future__ import annotations

from collections.abc import Mapping, Set

from zkcoord.tree.copied import own
from zkcoord.tree.snapshot import parents


class Problems:
    """The problems that are known while answers are taken in. The mapping is copied once, at the first change.

    >>> before = {"/a/b": "no JSON"}
    >>> problems = Problems(before)
    >>> problems.note("/c", "no number")
    >>> problems.forget({"/a"})
    >>> before, problems.known
    ({'/a/b': 'no JSON'}, {'/c': 'no number'})
    """

    def __init__(self, before: Mapping[str, str]) -> None:
        self.known = before  # path -> what is wrong with the node; the earlier mapping while nothing has changed
        self._changed: dict[str, str] | None = None  # the copy

    def note(self, path: str, what: str | None) -> None:
        """Note what is wrong with a node. None: nothing is wrong."""
        if what is None and path not in self.known:
            return
        changed = self.known = self._changed = own(self._changed, self.known)
        if what is None:
            del changed[path]
        else:
            changed[path] = what

    def forget(self, gone: Set[str]) -> None:
        """Forget the problems of these nodes, which are gone, and of all nodes below them."""
        for path in [p for p in self.known if p in gone or not gone.isdisjoint(parents(p))]:
            self.note(path, None)
