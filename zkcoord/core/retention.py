"""The end of a group: its deletion on request, and its removal when it has been empty for its retention.

A group's offsets are removed only when somebody asks for it; record and state are removed only together with them. So a
whole group is removed when its deletion with offsets was requested, or when it has no offsets and has had no members
for long enough.

This time must outlive failovers, and no wall clock is trusted. So the coordinator adds up the time that it has seen on
its own monotonic clock, and notes the sum in the state a few times in a retention. Time that no coordinator has seen
does not count. So a group is never removed too early, and for each failover at most one such step too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zkcoord.core.decisions import Decision, RemoveGroup, SetState, StateEvent, WriteResponse, written
from zkcoord.core.record import DELETE
from zkcoord.core.requests import DONE, deleting
from zkcoord.core.view import GroupView

RETENTION_MS = 7 * 24 * 3_600_000
"""ms for which a group without members and offsets is kept; it equals Kafka's `offsets.retention.minutes` since 2.0. An
adopted group is kept until it is released, and a group that was moved to another tree is kept for ever."""

STEPS = 7
"""How many times in one retention the time without members is noted."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The time for which coordinators have seen one group without members."""

    retention_ms: int = RETENTION_MS
    _since_ms: int | None = None  # time before it is in `_noted_ms`; None: there are members or a request
    _noted_ms: int = 0
    offsets_kept: bool = False  # True if the group was found to have offsets

    def seen(self, view: GroupView, now_ms: int) -> Retention:
        """The retention for this view of the group."""
        record = view.record
        if view.members or record.carried_out or record.adoption is not None or record.moved is not None:
            return Retention(self.retention_ms)
        since_ms = now_ms if self._since_ms is None else self._since_ms + view.state.empty_ms - self._noted_ms
        return Retention(self.retention_ms, since_ms, view.state.empty_ms, self.offsets_kept or bool(view.offsets))

    def empty_ms(self, now_ms: int) -> int:
        """ms for which the group has been empty; 0 while it is not."""
        return 0 if self._since_ms is None else self._noted_ms + now_ms - self._since_ms

    def past(self, now_ms: int) -> bool:
        """True when the group may be removed, unless it has offsets."""
        return self._since_ms is not None and self.empty_ms(now_ms) >= self.retention_ms

    def note(self, view: GroupView, now_ms: int) -> int | None:
        """The time to note in the state now. None: nothing is to be noted."""
        if view.members:
            return 0 if view.state.empty_ms or view.state.deleted else None
        empty_ms = self.empty_ms(now_ms)
        due = empty_ms - view.state.empty_ms >= self.retention_ms // STEPS
        return empty_ms if due and not self.past(now_ms) else None

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When the next step is due. None: nothing is waited for."""
        if self._since_ms is None or self.past(now_ms):
            return None
        return self._since_ms + min(self.retention_ms // STEPS, self.retention_ms - self._noted_ms)


def asks_for_offsets(view: GroupView, retention: Retention, now_ms: int) -> bool:
    """True while it must be known whether the group has offsets. An earlier answer is forgotten."""
    if not view.answerable:
        return False
    return deleting(view) or (retention.past(now_ms) and not retention.offsets_kept)


def clear(view: GroupView, retention: Retention, before: Sequence[Decision], now_ms: int) -> list[Decision]:
    """Remove the group, or note its time, if that is due. `before` are the earlier decisions of the same step.

    When the group has members again, `empty_ms` becomes 0, and the group does not count as deleted any more.
    """
    if deleting(view):
        request = view.record.requests[DELETE]
        if view.offsets is None:
            return []
        if request.offsets or not view.offsets:
            return [RemoveGroup(why=f"its deletion was asked for (run {request.run})")]
        why = "its offsets stay, and what belongs to them"
        return [WriteResponse(request=DELETE, run=request.run, state=DONE, ends=True, why=why)]
    if retention.past(now_ms) and view.offsets == 0:
        return [RemoveGroup(why=f"no members for {retention.empty_ms(now_ms)} ms, and no offsets")]
    noted = retention.note(view, now_ms)
    if noted is None:
        return []
    state = written(view.state, before)
    state = replace(state, empty_ms=noted, deleted=state.deleted and not view.members)
    why = "it has members again" if noted == 0 else "without members all that time"
    return [SetState(state=state, event=StateEvent.GROUP_EMPTY, why=why)]
