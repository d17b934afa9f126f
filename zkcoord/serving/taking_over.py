"""Reports the phases in which a new coordinator finds the groups: one event for all groups, instead of one for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from zkcoord.core.model import Phase

AT_REST = (Phase.STABLE, Phase.EMPTY, Phase.OBSERVED)
"""Phases that need no event of their own when a coordinator finds a group in them: nothing is under way, and nobody has
stopped the group."""

TOLD_AFTER_MS = 10_000
"""ms after which the event is sent in any case. Groups that could not be read by then are counted as unread."""


class TakeOver:
    """Counts the phases in which the groups are found."""

    def __init__(self, groups: Collection[str], epoch: int, now_ms: int) -> None:
        self._waiting, self._found = set(groups), Counter[str]()
        self._groups, self._epoch, self._began_ms = len(groups), epoch, now_ms

    def found(self, group: str, phase: Phase) -> bool:
        """Count the group if it is seen for the first time. Returns True if it was found at rest, so that it has not
        changed."""
        if group not in self._waiting:
            return False
        self._waiting.discard(group)
        self._found[phase.value] += 1
        return phase in AT_REST

    def gone(self, group: str) -> None:
        """Stop waiting for the group."""
        if group in self._waiting:
            self._waiting.discard(group)
            self._groups -= 1

    def due_ms(self, now_ms: int) -> int:
        """When the event is due if nothing more is found. `now_ms` or earlier: it is due now."""
        return self._began_ms + TOLD_AFTER_MS if self._waiting else now_ms

    def fields(self, now_ms: int) -> dict[str, Any]:
        """The event's fields: the number of groups, and the phases in which they were found."""
        unread = {"unread": len(self._waiting)} if self._waiting else {}
        states = dict(sorted(self._found.items()))
        return {"epoch": self._epoch, "groups": self._groups, "states": states, "ms": now_ms - self._began_ms, **unread}
