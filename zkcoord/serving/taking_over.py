"""What a coordinator finds when it begins to serve: one event for all groups, in place of one for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from zkcoord.core.model import Phase

AT_REST = (Phase.STABLE, Phase.EMPTY, Phase.OBSERVED)
"""Phases of which nobody must know when a coordinator finds them: nothing is on its way, and nobody has stopped it."""

TOLD_AFTER_MS = 10_000
"""Groups that nobody could read for so long are counted as unread: the event does not wait for them for ever."""


class TakeOver:
    """Counts the phases in which groups are found."""

    def __init__(self, groups: Collection[str], epoch: int, now_ms: int) -> None:
        self._waiting, self._found = set(groups), Counter[str]()
        self._groups, self._epoch, self._began_ms = len(groups), epoch, now_ms

    def found(self, group: str, phase: Phase) -> bool:
        """Count the group, if it is seen for the first time. True when it was found at rest: nothing has changed."""
        if group not in self._waiting:
            return False
        self._waiting.discard(group)
        self._found[phase.value] += 1
        return phase in AT_REST

    def gone(self, group: str) -> None:
        """Wait for the group no more."""
        if group in self._waiting:
            self._waiting.discard(group)
            self._groups -= 1

    def due_ms(self, now_ms: int) -> int:
        """When it is to be told, if nothing comes; `now_ms` or before: now."""
        return self._began_ms + TOLD_AFTER_MS if self._waiting else now_ms

    def fields(self, now_ms: int) -> dict[str, Any]:
        """The event's fields: how many groups there are, and in which states they were found."""
        unread = {"unread": len(self._waiting)} if self._waiting else {}
        states = dict(sorted(self._found.items()))
        return {"epoch": self._epoch, "groups": self._groups, "states": states, "ms": now_ms - self._began_ms, **unread}
