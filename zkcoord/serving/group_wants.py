"""The nodes of one group that a coordinator follows, each with the reasons for it.

A reason is a text. The reason for a node that a list names is the list's own key. So when a list is no longer followed,
neither are the nodes that it named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import Key, Want, key_of, path_and_kind

Below = Callable[[Sequence[str]], Iterable[Want]]
"""The nodes that these names in a list stand for."""

NOTHING: Mapping[Key, None] = {}


class GroupWants:
    """A node is wanted while there is a reason. Invariant: `_reasons` counts the entries of `_named`."""

    def __init__(self, group: str, tracker: Tracker) -> None:
        self._group, self._tracker = group, tracker
        self._named: dict[str, dict[Key, None]] = {}  # reason -> the nodes that it names, in order
        self._names: dict[Key, set[str]] = {}  # list -> the names in it whose nodes are followed
        self._reasons: dict[Key, int] = {}

    def follow(self, reason: str, wants: Iterable[Want]) -> None:
        """These are the nodes that this reason names now. Those that are new are read; those that only an earlier call
        named are no longer followed."""
        before, now = self._named.get(reason, NOTHING), list(wants)
        keys = {key_of(want.path, want.kind) for want in now}
        gone = [key for key in before if key not in keys]
        self.also(reason, now)
        self._remove(reason, gone)

    def also(self, reason: str, wants: Iterable[Want]) -> None:
        """Follow these nodes for this reason, besides those that it has named so far."""
        by_key = {key_of(want.path, want.kind): want for want in wants}
        self._tracker.want_all([by_key[key] for key in self._fresh(reason, by_key)], self._group)

    def also_data(self, reason: str, paths: Iterable[str]) -> None:
        """Follow the data of these nodes, as `also` does. Replies to own multis may answer it (`by_writes`). There may
        be very many."""
        self._tracker.want_data(self._fresh(reason, paths), self._group, by_writes=True)

    def _fresh(self, reason: str, keys: Iterable[Key]) -> list[Key]:
        """Note this reason for these different nodes. Returns those that had none."""
        named, reasons = self._named.setdefault(reason, {}), self._reasons
        added = [key for key in keys if key not in named]
        named.update(dict.fromkeys(added))
        fresh = [key for key in added if key not in reasons]
        reasons.update(dict.fromkeys(fresh, 0))
        for key in added:
            reasons[key] += 1
        return fresh

    def not_any_more(self, reason: str, wants: Iterable[Want]) -> None:
        """Stop following these nodes for this reason."""
        self._remove(reason, [key_of(want.path, want.kind) for want in wants])

    def listed(self, key: Key, names: Collection[str], below: Below, *, all_of_it: bool = True) -> None:
        """This list names these nodes now; with `all_of_it`, no others. Costs what has changed."""
        known, now = self._names.setdefault(key, set()), set(names)
        if fresh := now - known:
            known |= fresh
            self.also(key, below(sorted(fresh)))
        if all_of_it and len(known) > len(now):
            gone = known - now
            known -= gone
            self.not_any_more(key, below(sorted(gone)))

    def unlisted(self, key: Key, name: str, below: Below) -> None:
        """The node that this list named does not exist. It is followed again once the list is read and names it."""
        self._names.get(key, set()).discard(name)
        self.not_any_more(key, below([name]))

    def named(self, reason: str) -> Iterable[Key]:
        """The nodes that this reason names."""
        return self._named.get(reason, NOTHING)

    def __contains__(self, key: Key) -> bool:
        return key in self._reasons

    def _remove(self, reason: str, keys: Iterable[Key]) -> None:
        named = self._named.get(reason)
        if named is None:
            return
        for key in keys:
            if key not in named:
                continue
            del named[key]
            self._reasons[key] -= 1
            if not self._reasons[key]:
                del self._reasons[key]
                self._tracker.unwant(*path_and_kind(key))
                self._names.pop(key, None)
                self._remove(key, list(self._named.get(key, ())))
        if not named:
            self._named.pop(reason, None)
