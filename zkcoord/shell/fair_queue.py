"""A queue in lanes. A request that cannot take all takes a share of every lane, the oldest first.

So nobody waits for the end of a long lane (a group of thousands) (F10). Each request, and each lane, goes in the order
of adding.
"""

from __future__ import annotations

from itertools import islice
from operator import itemgetter

from zkcoord.tree.snapshot import Key


class FairQueue:
    """Keys, each once. A group's scope is a lane of its own; all paths (topics, for example) share one."""

    __slots__ = ("_added", "_lanes")

    def __init__(self) -> None:
        self._lanes: dict[str, dict[Key, int]] = {}  # invariant: none is empty; a key's number tells when it was added
        self._added = 0

    def add(self, key: Key, scope: str) -> None:
        """Add a key, unless it waits already."""
        lane = _lane(scope)
        keys = self._lanes.get(lane)
        if keys is None:
            keys = self._lanes[lane] = {}
        if key not in keys:
            self._added += 1
            keys[key] = self._added

    def discard(self, key: Key, scope: str) -> None:
        """Remove a key, if it waits."""
        lane = _lane(scope)
        keys = self._lanes.get(lane)
        if keys is not None and keys.pop(key, None) is not None and not keys:
            del self._lanes[lane]

    def __bool__(self) -> bool:
        """True while anything waits."""
        return bool(self._lanes)

    def clear(self) -> None:
        """Remove all keys."""
        self._lanes.clear()

    def take(self, count: int) -> list[Key]:
        """Remove and return at most `count` keys, oldest first."""
        if count <= 0 or not self._lanes:
            return []
        if sum(map(len, self._lanes.values())) <= count:
            every = [(number, key) for keys in self._lanes.values() for key, number in keys.items()]
            self._lanes.clear()
            return [key for _, key in sorted(every, key=itemgetter(0))]
        share = max(1, count // len(self._lanes))
        taken = self._take_each(share, count)
        taken += self._take_each(count, count - len(taken))
        return [key for _, key in sorted(taken)]

    def _take_each(self, share: int, count: int) -> list[tuple[int, Key]]:
        """Take up to `share` keys of every lane, together up to `count`."""
        taken: list[tuple[int, Key]] = []
        for lane, keys in list(self._lanes.items()):
            first = list(islice(keys.items(), min(share, count - len(taken))))
            if not first:
                break
            for key, _ in first:
                del keys[key]
            if not keys:
                del self._lanes[lane]
            taken += [(number, key) for key, number in first]
        return taken


def _lane(scope: str) -> str:
    return "" if scope[:1] == "/" else scope
