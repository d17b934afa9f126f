"""The nodes of one group that a coordinator follows, each with the reasons for it.

A reason is a text. The reason for a node that a list names is the list's own key. So when a list is no longer followed,
neither are the nodes that it named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import Key, Want, key_of, path_and_kind

NOTHING: Mapping[Key, None] = {}


class GroupWants:
    """A node is wanted while there is a reason. Invariant: `_reasons` counts the entries of `_named`."""

    def __init__(self, group: str, tracker: Tracker) -> None:
        self._group, self._tracker = group, tracker
        self._named: dict[str, dict[Key, None]] = {}  # reason -> the nodes that it names, in order
        self._reasons: dict[Key, int] = {}

    def follow(self, reason: str, wants: Iterable[Want]) -> None:
        """These are the nodes that this reason names now. Those that are new are read; those that only an earlier call
        named are no longer followed."""
        before = self._named.get(reason, NOTHING)
        now = {key_of(want.path, want.kind): want for want in wants}
        self._add(reason, now)
        self._remove(reason, [key for key in before if key not in now])

    def also(self, reason: str, wants: Iterable[Want]) -> None:
        """Follow these nodes for this reason, besides those that it has named so far."""
        self._add(reason, {key_of(want.path, want.kind): want for want in wants})

    def not_any_more(self, reason: str, wants: Iterable[Want]) -> None:
        """Stop following these nodes for this reason."""
        self._remove(reason, [key_of(want.path, want.kind) for want in wants])

    def named(self, reason: str) -> Iterable[Key]:
        """The nodes that this reason names."""
        return self._named.get(reason, NOTHING)

    def __contains__(self, key: Key) -> bool:
        return key in self._reasons

    def _add(self, reason: str, wants: Mapping[Key, Want]) -> None:
        named = self._named.setdefault(reason, {})
        fresh = [key for key in wants if key not in named]
        reasons = self._reasons
        self._tracker.want_all([wants[key] for key in fresh if key not in reasons], self._group)
        for key in fresh:
            named[key] = None
            reasons[key] = reasons.get(key, 0) + 1

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
                self._remove(key, list(self._named.get(key, ())))
        if not named:
            self._named.pop(reason, None)
