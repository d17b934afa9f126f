"""What a coordinator notes in the state of a group that has, or had, old members: the partitions that these have, or
may still commit.

Members read the notes when they join, since they did not see what was before (`core.former_owners`). The state holds no
times: each coordinator counts by its own clock, and removes what is over. A new coordinator counts anew, as with every
grace. The notes say how many changes of `ids` they cover, so that everybody sees when something is missing in them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from zkcoord.core.decisions import Decision, SetState, StateEvent, written
from zkcoord.core.former_owners import FormerOwners, planned_for_old
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.state import GroupState
from zkcoord.core.view import GroupView
from zkcoord.core.words import count

NOTED_BYTES_MAX = 128 * 1024
"""Bytes of these notes in a group's state, which is one node. If they need more there are none, and members that join
beside old members take every lower offset for a late commit, for as long as one may come."""

_RANGE_BYTES = len(",2147483647-2147483647")

Notes = tuple[frozenset[TopicPartition], int]  # `GroupState.old` and `GroupState.old_as_of`


@dataclass(frozen=True, kw_only=True)
class OldOwners:
    """What one coordinator saw of a group's old members. `seen` must be called with every view before anything else."""

    former: FormerOwners = field(default_factory=FormerOwners)
    partitions: frozenset[TopicPartition] | None = frozenset()  # to be noted; None: there is no room for them
    notes: Notes = (frozenset(), 0)  # what the state must say
    ids_changes: int = 0  # at the last look
    looked: tuple[object, ...] = ()  # all that the last look depended on; empty: before the first look

    def seen(self, view: GroupView, now_ms: int) -> OldOwners:
        """Return a copy that knows this view."""
        mode, state, former = view.mode, view.state, self.former
        if _coordinated(view) and not (state.old or former.owned or former.until_ms):
            return self if self.looked and self.ids_changes == view.ids_changes else _none(view.ids_changes)
        looked = (mode, state, view.owners, view.ids_changes)
        same = len(self.looked) == len(looked) and all(map(is_, self.looked, looked))
        due = any(at_ms <= now_ms for at_ms in former.until_ms.values())
        if same and not due:
            return self
        late_ms = 0 if view.record.adoption is None else view.record.adoption.late_ms
        if not self.looked:
            before = dict.fromkeys(_before(view), now_ms + late_ms)
            former = FormerOwners(until_ms=before) if mode.settled else FormerOwners(owned=state.old)
        elif view.ids_changes > self.ids_changes + 1 and not _coordinated(view):  # a plan in between was not seen
            unseen = dict.fromkeys(_every(view), now_ms + late_ms)
            former, due = replace(former, until_ms={**former.until_ms, **unseen}), True
        owned = _owned(view, former)
        partitions = self.partitions
        if due or not self.looked or owned != former.owned:  # else only owners of ours have changed, or `ids`
            former = former.owning(owned, now_ms, late_ms)
            every = former.owned.union(former.until_ms)
            partitions = every if _bytes(every) <= NOTED_BYTES_MAX else None
        return OldOwners(
            former=former,
            partitions=partitions,
            notes=_notes(view, partitions),
            ids_changes=view.ids_changes,
            looked=looked if mode.settled or self.looked else (),
        )

    def in_state(self, state: GroupState) -> GroupState:
        """Return the state with the present notes."""
        return replace(state, old=self.notes[0], old_as_of=self.notes[1])

    def wake_at_ms(self, view: GroupView, now_ms: int) -> int | None:
        """When the next of the notes is over."""
        return min((at_ms for at_ms in self.former.until_ms.values() if at_ms > now_ms), default=None)


def _none(ids_changes: int) -> OldOwners:
    """Nothing is noted of a group without old members."""
    return OldOwners(looked=(None,), ids_changes=ids_changes)


def noted(view: GroupView, old_owners: OldOwners, before: Sequence[Decision]) -> list[Decision]:
    """Write the notes into the state if they have changed."""
    if old_owners.notes == (view.state.old, view.state.old_as_of):
        return []
    why = f"old members have, or may still commit, {count(len(old_owners.notes[0]), 'partition')}"
    state = old_owners.in_state(written(view.state, before))
    return [SetState(state=state, event=StateEvent.OLD_OWNERS, why=why)]


def _coordinated(view: GroupView) -> bool:
    """True when the group is coordinated, and its state says so: then `ids` may change without a note."""
    return view.mode.coordinated and view.state.mode is Mode.COORDINATED


def _before(view: GroupView) -> Iterable[TopicPartition]:
    """What old members may have had before this coordinator's first look: what the state says. If `ids` has changed
    since, while nobody looked on, it is everything."""
    state = view.state
    if _coordinated(view) or state.old_as_of == view.ids_changes:
        return state.old
    return state.old.union(_every(view))


def _every(view: GroupView) -> set[TopicPartition]:
    """Every partition that old members may have had."""
    return {TopicPartition(topic, number) for topic, numbers in view.topics.items() for number in numbers}


def _owned(view: GroupView, before: FormerOwners) -> frozenset[TopicPartition]:
    """The partitions that old members have, by the plan or by their claims. Without a plan the earlier one counts."""
    old = view.mode.old
    planned = planned_for_old(view.mode) if view.mode.settled else before.owned
    threads = {thread for thread in {thread for thread, _ in view.owners.values()} if consumer_of(thread) in old}
    claims = [p for p, (thread, _) in view.owners.items() if thread in threads and p not in planned] if threads else ()
    return planned.union(claims) if claims else planned


def _notes(view: GroupView, partitions: frozenset[TopicPartition] | None) -> Notes:
    again = _coordinated(view)
    if partitions is None or (again and not partitions):
        return frozenset(), 0
    return partitions, view.ids_changes if view.mode.settled and not again else view.state.old_as_of


def _bytes(partitions: Iterable[TopicPartition]) -> int:
    """Bytes of the notes in the state, at most."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for topic, number in partitions:
        numbers[topic].add(number)
    ranges = sum(1 for found in numbers.values() for number in found if number - 1 not in found)
    return ranges * _RANGE_BYTES + sum(len(topic) + len('"":"",') for topic in numbers)
