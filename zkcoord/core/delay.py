"""How long a young group waits for joins (`initial_delay_ms`, as Kafka's groups have it). It never delays a stop.

Counted by this coordinator's clock from the first sight of a member while no living member owns anything; each join
extends it, up to the longest rebalance timeout of its members. Once somebody owned something there is no more waiting
until the group was empty again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkcoord.core.view import GroupView


@dataclass(slots=True)
class FirstDelay:
    """Invariant: `until_ms` is 0 unless members are waited for."""

    until_ms: int = 0
    _began: bool = False  # somebody owned something since the group was last empty
    _since_ms: int | None = None
    _seen: set[str] = field(default_factory=set)

    def look(self, view: GroupView, now_ms: int) -> None:
        """Take the group in."""
        if not view.members or not view.initial_delay_ms:
            self.until_ms, self._began, self._since_ms, self._seen = 0, bool(view.members), None, set()
            return
        self._began = self._began or bool(view.living_threads())
        if self._began:
            self.until_ms = 0
            return
        if view.members.keys() - self._seen:
            since_ms = self._since_ms = now_ms if self._since_ms is None else self._since_ms
            self._seen |= view.members.keys()
            ceiling_ms = max(view.initial_delay_ms, *(m.rebalance_timeout_ms for m in view.members.values()))
            self.until_ms = min(now_ms + view.initial_delay_ms, since_ms + ceiling_ms)

    def waits(self, now_ms: int) -> bool:
        """True while nothing is raised and nothing granted."""
        return now_ms < self.until_ms
