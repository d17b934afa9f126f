"""The wait of a young group for joins (`initial_delay_ms`, as Kafka's groups have it). It never delays a stop.

The wait begins when this coordinator first sees a member while no living member owns anything. Each join extends it, up
to the longest rebalance timeout of the members. Once a member has owned a partition, the group does not wait again
until it has been empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkcoord.core.view import GroupView


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """Invariant: `until_ms` is 0 unless the group waits for members."""

    until_ms: int = 0
    _began: bool = False  # True if somebody owned something since the group was last empty
    _since_ms: int | None = None
    _seen: frozenset[str] = frozenset()

    def seen(self, view: GroupView, now_ms: int) -> InitialDelay:
        """The delay for this view of the group."""
        if not view.members or not view.record.policy.initial_delay_ms:
            return InitialDelay(_began=bool(view.members))
        if self._began or view.living_threads():
            return InitialDelay(0, True, self._since_ms, self._seen)
        if not view.members.keys() - self._seen:
            return self
        since_ms = now_ms if self._since_ms is None else self._since_ms
        ceiling_ms = max(view.record.policy.initial_delay_ms, *(m.rebalance_timeout_ms for m in view.members.values()))
        until_ms = min(now_ms + view.record.policy.initial_delay_ms, since_ms + ceiling_ms)
        return InitialDelay(until_ms, False, since_ms, self._seen | view.members.keys())

    def waits(self, now_ms: int) -> bool:
        """True while the generation is not raised, and nothing is granted."""
        return now_ms < self.until_ms
