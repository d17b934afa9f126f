"""How a loop wants nodes, and which of them its own multis change right now."""

from __future__ import annotations

from dataclasses import dataclass

from zkcoord.tree.snapshot import Key, Node


@dataclass(slots=True)
class Wanted:
    """How nodes are wanted. Where nothing is watched, those that are wanted together share one: there are many."""

    scope: str
    by_writes: bool = False  # answered by the reply to an own multi, too: that sets, creates or deletes it, or (of a
    # list) what the multi makes in it with a sequence, and the list itself if nobody else has changed it
    watch: bool = False
    armed: bool = False  # its watch stands
    beside: tuple[str, ...] = ()  # whose data is read with it when its watch fires
    listed: Node | None = None  # of a list that is answered by writes, too: as it was known last


class Expected:
    """Wants that are dirty because an own multi changes them, and whose event will tell, or the multi's outcome."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._alone: dict[Key, int] = {}  # lists of these that nothing else has made dirty -> the multi's token

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def add(self, key: Key, want: Wanted, token: int) -> None:
        """A multi was sent as `token`, and changes this want, which was clean."""
        self._keys.add(key)
        if want.listed is not None:
            self._alone[key] = token

    def fired(self, key: Key) -> bool:
        """The event has come. True when the want must be read; of a list that may be clean the reply will tell."""
        if key in self._alone:
            return False
        self._keys.discard(key)
        return True

    def spoil(self, key: Key) -> None:
        """Something else says that the list has changed."""
        if self._alone:
            self._alone.pop(key, None)

    def clean(self, key: Key, token: int) -> bool:
        """The reply to the multi says that nobody else has changed the list. True when it is clean."""
        if self._alone.get(key) != token:
            return False
        self.discard(key)
        return True

    def discard(self, key: Key) -> None:
        """Expect nothing of this want."""
        self._keys.discard(key)
        self.spoil(key)

    def clear(self) -> None:
        """Expect nothing."""
        self._keys.clear()
        self._alone.clear()
