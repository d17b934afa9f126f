"""The end of a group: its deletion on request, and its removal when it was empty for its retention.

A group's offsets go only when somebody asks for it; record and state go only together with them. So a group is removed
whole when its deletion was asked for with the offsets, or when it has none and was without members long enough.

This time must outlive failovers, and no wall clock is trusted: the coordinator adds up what it has seen on its own
monotonic clock and notes it in the state, a few times in a whole retention. Time that no coordinator has seen does not
count. So a group is never removed too early, and at most one such step later for each failover.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zkcoord.core.decisions import Decision, RemoveGroup, SetState, StateEvent, WriteResponse, written
from zkcoord.core.record import DELETE
from zkcoord.core.requests import DONE, deleting
from zkcoord.core.view import GroupView

RETENTION_MS = 7 * 24 * 3_600_000
"""A group without members and offsets is kept this long, as Kafka's `offsets.retention.minutes` of 2.0 and newer. An
adopted group is kept until it is released, and one that was moved to another tree for ever."""

STEPS = 7
"""A group's time without members is noted this many times in a retention."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The time for which coordinators have seen one group without members."""

    retention_ms: int = RETENTION_MS
    _since_ms: int | None = None  # what was noted before it, is in `_noted_ms`; None: members, or a request
    _noted_ms: int = 0
    offsets_kept: bool = False  # it was looked: there are offsets

    def seen(self, view: GroupView, now_ms: int) -> Retention:
        """The group as it is now."""
        record = view.record
        if view.members or record.requests or record.adoption is not None or record.moved is not None:
            return Retention(self.retention_ms)
        since_ms = now_ms if self._since_ms is None else self._since_ms + view.state.empty_ms - self._noted_ms
        return Retention(self.retention_ms, since_ms, view.state.empty_ms, self.offsets_kept or bool(view.offsets))

    def empty_ms(self, now_ms: int) -> int:
        """How long it has been empty; 0 while it is not."""
        return 0 if self._since_ms is None else self._noted_ms + now_ms - self._since_ms

    def past(self, now_ms: int) -> bool:
        """True when it may go, unless it has offsets."""
        return self._since_ms is not None and self.empty_ms(now_ms) >= self.retention_ms

    def note(self, view: GroupView, now_ms: int) -> int | None:
        """The time to note in the state now; None: nothing is to be noted."""
        if view.members:
            return 0 if view.state.empty_ms or view.state.deleted else None
        empty_ms = self.empty_ms(now_ms)
        due = empty_ms - view.state.empty_ms >= self.retention_ms // STEPS
        return empty_ms if due and not self.past(now_ms) else None

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When the next step is due; None: nothing is waited for."""
        if self._since_ms is None or self.past(now_ms):
            return None
        return self._since_ms + min(self.retention_ms // STEPS, self.retention_ms - self._noted_ms)


def asks_for_offsets(view: GroupView, retention: Retention, now_ms: int) -> bool:
    """True while it must be known whether the group has offsets: what was known for an earlier reason is forgotten."""
    if not view.answerable:
        return False
    return deleting(view) or (retention.past(now_ms) and not retention.offsets_kept)


def clear(view: GroupView, retention: Retention, before: Sequence[Decision], now_ms: int) -> list[Decision]:
    """Remove the group, or note its time, if it is due; `before`: the earlier decisions of the same step.

    Of a group that has members again `empty_ms` is 0, and the group does not count as deleted any more.
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
