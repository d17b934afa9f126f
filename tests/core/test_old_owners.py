"""What a coordinator notes of old members in the group's state: what they have, and what they may still commit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.core.groups import NOW, T0, T1, T2, T3, Steps, altered, group, member, settled, states
from zkcoord.core.adoption import Adoption
from zkcoord.core.decisions import StateEvent
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.former_owners import FormerOwners
from zkcoord.core.mode import COORDINATED, GroupMode, Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.old_owners import NOTED_BYTES_MAX, OldOwners
from zkcoord.core.state import GroupState
from zkcoord.core.view import GroupView

OURS, OLD = "g_us", "g_old"
ADOPTION = Adoption(offsets="zookeeper", strategy="range", kafka="1.1", auto_commit_interval_ms=60_000)
LATE_MS = 90_000
OBSERVED = GroupMode(mode=Mode.OBSERVE, why="pykafka", old=frozenset({OLD}))


def mixed(*old: TopicPartition) -> GroupMode:
    """A group whose plan gives these partitions to the old member, and the rest to ours."""
    plan = {p: f"{OLD if p in old else OURS}-0" for p in (T0, T1, T2, T3)}
    return GroupMode(mode=Mode.MIXED, why="an old member", old=frozenset({OLD}), plan=plan, patience_ms=6_000)


class Group:
    """A group whose state is what its coordinators wrote last."""

    def __init__(self, **state: object) -> None:
        self.steps, self.state = Steps(), GroupState(**state)  # type: ignore[arg-type]
        self.writes = 0

    def sees(
        self, mode: GroupMode, at_ms: int, ids_changes: int, owners: Mapping[TopicPartition, str] | None = None
    ) -> tuple[set[TopicPartition], int]:
        """The notes after the coordinator saw this, and wrote what it decided until nothing was left."""
        members = [member(OURS), *([member(OLD, 2, speaks_protocol=False, assignors=())] if mode.old else ())]
        held = dict.fromkeys((T0, T1, T2, T3), f"{OURS}-0") if mode.coordinated else {}
        view = group(members, held if owners is None else owners)
        view = altered(fast_replace(view, mode=mode, ids_changes=ids_changes), adoption=ADOPTION)
        target = settled(view).state.target if mode.coordinated else self.state.target
        self.state = fast_replace(self.state, target=target)
        for _ in range(9):
            decisions, self.wake_ms = self.steps.step(fast_replace(view, state=self.state), at_ms)
            found = [state for event in StateEvent for state in states(decisions, event)]
            if not found:
                return set(self.state.old), self.state.old_as_of
            self.state, self.writes = found[-1], self.writes + len(found)
        raise AssertionError("it does not come to rest")

    def fails_over(self) -> None:
        """Another coordinator serves from now on."""
        self.steps = Steps()


def test_f326_partitions_planned_for_old_members_are_noted_with_the_changes_covered() -> None:
    found = Group()
    assert found.sees(COORDINATED, NOW, 1) == (set(), 0)
    assert found.sees(mixed(T0, T1), NOW, 2) == ({T0, T1}, 2)
    assert found.writes == 1  # in one write with the mode
    assert found.sees(mixed(T0, T1), NOW, 3) == ({T0, T1}, 3)  # one of ours came
    assert found.sees(mixed(T0, T1), NOW + 1, 3) == ({T0, T1}, 3)
    assert found.writes == 2


def test_f326_everything_is_noted_if_the_coordinator_missed_a_plan_between_two_looks() -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0), NOW, 2)
    assert found.sees(mixed(T0), NOW + 5, 4) == ({T0, T1, T2, T3}, 4)
    assert found.sees(mixed(T0), NOW + 5 + LATE_MS, 4) == ({T0}, 4)
    assert found.sees(COORDINATED, NOW + 6 + LATE_MS, 6) == ({T0, T1, T2, T3}, 6)


def test_f326_partitions_that_left_old_members_are_noted_while_a_commit_may_be_late() -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0, T1), NOW, 2)
    assert found.sees(mixed(T1), NOW + 5, 3) == ({T0, T1}, 3)
    assert found.sees(COORDINATED, NOW + 10, 4) == ({T0, T1}, 4)
    assert found.state.mode is Mode.COORDINATED
    assert found.wake_ms == NOW + 5 + LATE_MS
    writes = found.writes
    assert found.sees(COORDINATED, NOW + 4 + LATE_MS, 9) == ({T0, T1}, 4)  # members of ours come and go without a note
    assert found.writes == writes
    assert found.sees(COORDINATED, NOW + 5 + LATE_MS, 9) == ({T1}, 4)
    assert found.sees(COORDINATED, NOW + 10 + LATE_MS, 9) == (set(), 0)
    assert found.writes == writes + 2


def test_f326_a_claim_that_an_old_member_keeps_against_the_plan_is_noted() -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0, T1), NOW, 2, {T1: f"{OLD}-0"})
    assert found.sees(mixed(T0), NOW + 2 * LATE_MS, 3, {T1: f"{OLD}-0"}) == ({T0, T1}, 3)
    found.sees(mixed(T0), NOW + 3 * LATE_MS, 3)
    assert found.sees(mixed(T0), NOW + 4 * LATE_MS - 1, 3) == ({T0, T1}, 3)
    assert found.sees(mixed(T0), NOW + 4 * LATE_MS, 3) == ({T0}, 3)


def test_f326_the_next_coordinator_knows_the_notes_and_counts_anew() -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0, T1), NOW, 2)
    found.sees(COORDINATED, NOW, 3)
    found.fails_over()
    assert found.sees(COORDINATED, NOW + LATE_MS, 7) == ({T0, T1}, 3)
    assert found.sees(COORDINATED, NOW + 2 * LATE_MS, 7) == (set(), 0)


@pytest.mark.parametrize("now", [mixed(T0, T1), COORDINATED])
def test_f326_everything_is_noted_after_changes_that_no_coordinator_saw(
    now: GroupMode,
) -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0, T1), NOW, 2)
    found.fails_over()
    assert found.sees(now, NOW, 4) == ({T0, T1, T2, T3}, 4)
    left = ({T0, T1}, 4) if now.old else (set(), 0)
    assert found.sees(now, NOW + LATE_MS, 4) == left


def test_f326_a_takeover_without_such_a_gap_adds_nothing() -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0, T1), NOW, 2)
    found.fails_over()
    assert found.sees(mixed(T0, T1), NOW, 2) == ({T0, T1}, 2)


def test_f326_while_nobody_knows_what_they_have_nothing_is_over_and_their_claims_are_added() -> None:
    found = Group(old=frozenset({T0}), old_as_of=2, mode=Mode.MIXED)
    assert found.sees(OBSERVED, NOW, 3, {T1: "g_old-0"}) == ({T0, T1}, 2)
    assert found.sees(OBSERVED, NOW + 2 * LATE_MS, 3) == ({T0, T1}, 2)
    assert found.sees(COORDINATED, NOW + 3 * LATE_MS, 4) == ({T0, T1, T2, T3}, 4)  # nor did it look on before
    assert found.sees(COORDINATED, NOW + 4 * LATE_MS, 4) == (set(), 0)


def test_f326_the_last_plans_partitions_stay_noted_while_nobody_knows_the_present_ones() -> None:
    found = Group()
    found.sees(COORDINATED, NOW, 1)
    found.sees(mixed(T0, T1), NOW, 2)
    assert found.sees(OBSERVED, NOW, 3) == ({T0, T1}, 2)
    assert found.sees(OBSERVED, NOW + 2 * LATE_MS, 3) == ({T0, T1}, 2)
    assert found.sees(mixed(T1), NOW + 3 * LATE_MS, 4) == ({T0, T1}, 4)
    assert found.sees(mixed(T1), NOW + 4 * LATE_MS, 4) == ({T1}, 4)


def test_f326_notes_without_room_in_the_state_are_none_and_cover_nothing() -> None:
    plan = {TopicPartition("x" * 249, 2 * n): f"{OLD}-0" for n in range(NOTED_BYTES_MAX // 22 + 1)}
    view = fast_replace(GroupView(group="g"), mode=fast_replace(mixed(), plan=plan), ids_changes=2)
    assert OldOwners().seen(view, NOW).notes == (frozenset(), 0)
    fits = fast_replace(view, mode=fast_replace(mixed(), plan=dict(list(plan.items())[:-20])))
    assert len(OldOwners().seen(fits, NOW).notes[0]) == len(plan) - 20


def test_the_last_time_at_which_an_old_member_lost_a_partition_counts() -> None:
    former = FormerOwners(owned=frozenset({T0})).after(mixed(), NOW, LATE_MS)
    again = former.after(mixed(T0), NOW + 5, LATE_MS).after(mixed(), NOW + 10, LATE_MS)
    assert (again.may_commit(T0, NOW + 9 + LATE_MS), again.may_commit(T0, NOW + 10 + LATE_MS)) == (True, False)


def test_while_nobody_knows_what_old_members_have_they_have_lost_nothing() -> None:
    former = FormerOwners(owned=frozenset({T0}))
    assert former.after(OBSERVED, NOW, LATE_MS) is former


def test_nothing_is_computed_again_until_something_changes_or_is_over() -> None:
    view = altered(GroupView(group="g"), adoption=ADOPTION)
    ours = OldOwners().seen(view, NOW)  # a group without old members
    assert ours.seen(view, NOW + 1) is ours
    shared = fast_replace(view, mode=mixed(T0), ids_changes=1)
    gone = fast_replace(view, state=GroupState(old=frozenset({T0}), old_as_of=2, mode=Mode.MIXED), ids_changes=2)
    left = OldOwners().seen(shared, NOW).seen(gone, NOW)
    assert left.seen(gone, NOW + LATE_MS - 1) is left
    assert left.seen(gone, NOW + LATE_MS).notes == (frozenset(), 2)
