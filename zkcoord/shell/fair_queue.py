"""A queue in lanes. A request that has no room for all keys takes an equal share of every lane, oldest first.

So no lane waits for the end of a long one, for example that of a group with thousands of nodes (F10). Keys in a request
and in a lane are in the order in which they were added. A patient lane makes no request of its own for a while: its
keys go with the next request of another lane.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from operator import itemgetter

from zkcoord.tree.snapshot import Key

PATIENCE_MS = 100
"""ms for which a patient lane waits for another request. Most hand-overs take about as long."""

_DUE = -1


class FairQueue:
    """A set of keys in lanes. A group's scope is a lane of its own. All paths (for example topics) share one lane."""

    __slots__ = ("_added", "_lanes", "_patient")

    def __init__(self) -> None:
        self._patient: dict[str, int | None] = {}  # patient lane -> until when it waits; None: not computed yet
        self._lanes: dict[str, dict[Key, int]] = {}
        # invariant: no lane is empty; a key's number is its place in the order of adding
        self._added = 0

    def add(self, key: Key, scope: str) -> None:
        """Add a key, unless it is in the queue already."""
        keys = self._keys(scope)
        if key not in keys:
            self._added += 1
            keys[key] = self._added

    def add_all(self, added: Collection[Key], scope: str) -> None:
        """Add these keys, of which none is in the queue. There may be very many, but there is one."""
        first, self._added = self._added + 1, self._added + len(added)
        self._keys(scope).update(zip(added, range(first, first + len(added)), strict=True))

    def _keys(self, scope: str) -> dict[Key, int]:
        """The keys in the lane of a scope, to which a key is about to be added."""
        lane = _lane(scope)
        keys = self._lanes.get(lane)
        if keys is None:
            keys = self._lanes[lane] = {}
            if lane in self._patient:
                self._patient[lane] = None
        return keys

    def discard(self, key: Key, scope: str) -> None:
        """Remove a key, if it is in the queue."""
        lane = _lane(scope)
        keys = self._lanes.get(lane)
        if keys is not None and keys.pop(key, None) is not None and not keys:
            del self._lanes[lane]

    def patient(self, scope: str, *, patient: bool) -> None:
        """Make the lane of a scope patient, or end that."""
        if not patient:
            self._patient.pop(_lane(scope), None)
        else:
            self._patient.setdefault(_lane(scope), None)

    def due_ms(self, now_ms: int) -> list[int]:
        """When waiting patient lanes make a request of their own. Lanes whose time has come make requests from now
        on."""
        times: list[int] = []
        for lane, until_ms in self._patient.items():  # usually empty
            if lane not in self._lanes or until_ms == _DUE:
                continue
            until_ms = self._patient[lane] = now_ms + PATIENCE_MS if until_ms is None else until_ms
            if now_ms >= until_ms:
                self._patient[lane] = _DUE
            else:
                times.append(until_ms)
        return times

    def __bool__(self) -> bool:
        """True while a lane wants a request."""
        if not self._patient:
            return bool(self._lanes)
        return any(self._patient.get(lane, _DUE) == _DUE for lane in self._lanes)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

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
        """Take up to `share` keys of every lane, up to `count` in total."""
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
