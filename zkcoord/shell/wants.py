"""How a loop wants a node, and which wants its own multis change right now."""

from __future__ import annotations

from dataclasses import dataclass

from zkcoord.tree.snapshot import Key, Node


@dataclass(slots=True)
class Wanted:
    """How nodes are wanted. Unwatched nodes that are wanted together share one object, since there are many."""

    scope: str
    by_writes: bool = False
    # True if the reply to an own multi may answer it, too: the multi sets, creates or deletes the node, or (for a list)
    # creates nodes in it with a sequence, or is the only one that changed the list
    watch: bool = False
    armed: bool = False  # True if its watch is set; of a want that is dirty or being read it says nothing
    beside: tuple[str, ...] = ()  # nodes whose data is read with it when its watch fires
    listed: Node | None = None  # for a list that replies may answer: the list as it was known last


class Expected:
    """Wants that are dirty because an own multi changes them. Their event, or the multi's outcome, tells the new
    state."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._alone: dict[Key, int] = {}  # those that are lists which nothing else has made dirty -> the multi's token

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def add(self, key: Key, want: Wanted, token: int) -> None:
        """The multi `token` was sent, and changes this want, which was clean."""
        self._keys.add(key)
        if want.listed is not None:
            self._alone[key] = token

    def fired(self, key: Key) -> bool:
        """The event has come. True if the want must be read. For a list that may be clean, the reply decides."""
        if key in self._alone:
            return False
        self._keys.discard(key)
        return True

    def spoil(self, key: Key) -> None:
        """Something else shows that the list has changed."""
        if self._alone:
            self._alone.pop(key, None)

    def clean(self, key: Key, token: int) -> bool:
        """The reply to the multi shows that nobody else has changed the list. Returns True if the list is clean."""
        if self._alone.get(key) != token:
            return False
        self.discard(key)
        return True

    def discard(self, key: Key) -> None:
        """Stop expecting anything of this want."""
        self._keys.discard(key)
        self.spoil(key)

    def clear(self) -> None:
        """Stop expecting anything."""
        self._keys.clear()
        self._alone.clear()
