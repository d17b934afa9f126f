"""Each rule about mixed groups is taken away, and a scene of such a group must fail."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.sim import test_adoption, test_beside, test_beside_storms, test_mixed_ranges, test_modes, test_stolen_ranges
from tests.sim import test_mixed_groups as scenes
from tests.sim import test_old_commits as old_commits
from tests.sim.mutations import Case, Patch, must_be_missed
from zkcoord.core import old_owners, replay
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.former_owners import FormerOwners
from zkcoord.core.member import decide, neighbours, ownership, replaying, sharing, stops
from zkcoord.core.member.decisions import ReadStatuses
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.neighbours import Neighbours, _given_ms
from zkcoord.core.member.view import NOBODY, STATUSES
from zkcoord.core.mode import GroupMode
from zkcoord.core.state import GroupState
from zkcoord.legacy import modes
from zkcoord.member import neighbourhood
from zkcoord.member.joining import Joining
from zkcoord.member.neighbourhood import Neighbourhood
from zkcoord.member.statuses import Statuses
from zkcoord.tree import member
from zkcoord.tree.paths import RELEASED_MARK, Place


def coordinates_beside_old_members(patch: Patch) -> None:
    """A coordinator starts and stops partitions whoever is there."""
    patch.setattr(GroupMode, "coordinated", property(lambda self: True))


def keeps_what_the_plan_gives_to_others(patch: Patch) -> None:
    """A member claims its share, and releases nothing."""
    original = sharing.follow_plan

    def follow(view: Any, memory: Any, *rest: Any) -> Any:
        if any((view.neighbours.share or {}).get(p) != held.thread for p, held in memory.held.items()):
            return [], memory
        return original(view, memory, *rest)

    patch.setattr(decide.sharing, "follow_plan", follow)


def waits_for_the_application(patch: Patch) -> None:
    """An application has all the time that it wants to stop."""
    patch.setattr(stops, "overdue", lambda view, memory, now_ms: ([], memory))


def claims_nothing(patch: Patch) -> None:
    """A member waits for a start, which nobody sends."""
    original = sharing.follow_plan

    def follow(view: Any, *rest: Any) -> Any:
        return original(fast_replace(view, neighbours=fast_replace(view.neighbours, free=frozenset())), *rest)

    patch.setattr(decide.sharing, "follow_plan", follow)


def claims_without_its_registration(patch: Patch) -> None:
    """A claim does not check that its consumer is registered."""
    original = member.claim

    def claim(paths: Any, *rest: Any) -> Any:
        for transaction in original(paths, *rest):
            yield replace(transaction, writes=tuple(w for w in transaction.writes if w != paths.check()))

    patch.setattr(member, "claim", claim)


def plans_by_its_own_members_only(patch: Patch) -> None:
    """The plan leaves the old members out."""
    original = modes.plan_of

    def plan_of(group: Any) -> Any:
        ours = {name: text for name, text in group.registrations.items() if "zkcoord" in text}
        return original(replace(group, registrations=ours))

    patch.setattr(modes, "plan_of", plan_of)


def plans_with_internal_topics(patch: Patch) -> None:
    """The plan has topics that old members' wildcards leave out (`exclude.internal.topics`)."""
    original = modes.plan_of
    patch.setattr(modes, "plan_of", lambda group: original(replace(group, exclude_internal=False)))


def registers_beside_anybody(patch: Patch) -> None:
    """A consumer registers also where nobody can share the group."""
    patch.setattr(Neighbours, "obstacle", property(lambda self: None))


def forgets_what_others_announced(patch: Patch) -> None:
    """Who claims a partition begins at its offset with ranges of its own."""
    patch.setattr(replaying, "taking_over", lambda view, memory, start, offsets: memory)


def looks_before_its_claim(patch: Patch) -> None:
    """What others announced between the look and the claim is not done as it was announced (F342)."""
    original = ownership.claim

    def claim(view: Any, memory: Any, start: Any) -> Any:
        if start.planned and not start.looked:
            return [ReadStatuses()], fast_replace(start, looked=True)
        if STATUSES in view.unread:
            return [], start
        decisions, claimed = original(view, memory, start)
        return decisions, fast_replace(claimed, looked=start.looked)

    patch.setattr(ownership, "claim", claim)


def looks_once(patch: Patch) -> None:
    """Nor what others announced before a claim that is made again (F342)."""
    original = ownership.claim

    def claim(view: Any, memory: Any, start: Any) -> Any:
        decisions, claimed = original(view, memory, start)
        return decisions, fast_replace(claimed, looked=start.looked)

    patch.setattr(ownership, "claim", claim)


def tells_an_application_the_offset_once(patch: Patch) -> None:
    """A range that is found when the application has begun at its offset is not told to it (F342)."""
    original = replaying.beginnings

    def beginnings(*given: Any) -> Any:
        return {p: at._replace(replay_end=None) for p, at in original(*given).items()}

    patch.setattr(replaying, "beginnings", beginnings)


def announces_whatever_became_of_its_claims(patch: Patch) -> None:
    """An announcement does not check the offsets of its partitions (F352)."""
    original = member.announce
    patch.setattr(
        member, "announce", lambda paths, status, status_version, offsets: original(paths, status, status_version, {})
    )


def starts_whatever_others_announce(patch: Patch) -> None:
    """An acknowledgement does not check the statuses of those that may still announce (F352)."""
    patch.setattr(ownership, "may_announce", lambda view, partitions: {})


def takes_a_claim_for_a_start(patch: Patch) -> None:
    """A range that was left unfinished is over when another consumer has claimed the partition (F340, F348)."""
    patch.setattr(
        ownership, "leftover_over", lambda view, memory, partition: bool(view.owners.get(partition, NOBODY).thread)
    )


def claims_with_the_generation_of_its_starts(patch: Patch) -> None:
    """Ranges of who was never sent a start are taken for earlier ones (F358)."""
    patch.setattr(replaying, "behind_earlier", lambda view, memory, start: (memory, start))


def obeys_starts_without_a_look(patch: Patch) -> None:
    """Who obeys a start does not ask what was announced since (F360)."""
    patch.setattr(Memory, "noting", lambda self, view: self)


def takes_a_topic_without_subscribers_for_gone(patch: Patch) -> None:
    """Beside old members, too, where no mark tells that the topic is there (F362)."""
    original = replay._counts
    patch.setattr(
        replay,
        "_counts",
        lambda view, partition, announced: original(fast_replace(view, claims=False), partition, announced),
    )


def claims_without_a_word(patch: Patch) -> None:
    """The coordinator does not read the status of who has acknowledged a claim (F364)."""
    original = member.start

    def start(*given: Any, **named: Any) -> Any:
        transaction = original(*given, **named)
        silent = tuple(write for write in transaction.writes if not write.path.endswith(f"/{RELEASED_MARK}"))
        return replace(transaction, writes=silent)

    patch.setattr(member, "start", start)


def takes_the_node_for_the_offset(patch: Patch) -> None:
    """A range that was left unfinished is over when the node has another offset, in any store (F354)."""
    patch.setattr(
        ownership,
        "leftover_over",
        lambda view, memory, partition: view.positions[partition].offset != memory.batch[partition].start,
    )


def looks_at_dead_members_only(patch: Patch) -> None:
    """What a living member announced and did not finish is not done as it was announced."""
    take, of_group, living = Statuses.take, Neighbourhood._of_group, set[str]()

    def note_the_living(self: Any, address: Any, node: Any, told_ms: int) -> None:
        if address.place is Place.IDS:
            living.clear()
            living.update(node.children)
        of_group(self, address, node, told_ms)

    def take_dead(self: Any, node: Any) -> bool:
        above, _, name = node.path.rpartition("/")
        living_other = above == self._above and name in living and node.path != self._own
        return take(self, node._replace(data=b"") if living_other else node)

    patch.setattr(Neighbourhood, "_of_group", note_the_living)
    patch.setattr(Statuses, "take", take_dead)


def knows_no_incarnation(patch: Patch) -> None:
    """A claim does not say which topic of its name it is about."""
    patch.setattr(neighbourhood, "_incarnation", lambda node: 0)


def takes_late_commits_for_resets(patch: Patch) -> None:
    """A lower offset is somebody's will, also when an old member had the partition just before (F132)."""
    patch.setattr(FormerOwners, "may_commit", lambda self, partition, now_ms: False)


def takes_resets_for_late_commits(patch: Patch) -> None:
    """A lower offset is written over, whoever had the partition before (F133)."""
    patch.setattr(FormerOwners, "may_commit", lambda self, partition, now_ms: True)


def reads_no_notes(patch: Patch) -> None:
    """A member knows of old members only what it saw itself (F326)."""
    patch.setattr(neighbourhood, "_notes", lambda node: GroupState())


def trusts_no_notes(patch: Patch) -> None:
    """A member that joins takes every lower offset for a late commit, whatever the notes cover (F326)."""
    original = neighbourhood._notes
    patch.setattr(neighbourhood, "_notes", lambda node: replace(original(node), old_as_of=0))


def forgets_the_notes_of_the_last_coordinator(patch: Patch) -> None:
    """A new coordinator notes only what it sees itself (F326)."""
    patch.setattr(old_owners, "_before", lambda view: ())


def gives_the_time_of_the_last_change(patch: Patch) -> None:
    """An old joiner's last attempt does not count, only when a partition was seen to move (F100)."""
    patch.setattr(
        Neighbours,
        "_stopped_by_ms",
        lambda self, partition: self.moved_ms.get(partition, self.since_ms) + _given_ms(self.mode.patience_ms),
    )


def gives_twice_the_time(patch: Patch) -> None:
    """An application has twice the time that an old joiner tries for (F100)."""
    patch.setattr(neighbours, "_given_ms", lambda patience_ms: 2 * patience_ms)


def waits_for_no_registration(patch: Patch) -> None:
    """One that cannot be read makes the group observed at once."""
    patch.setattr(modes, "GRACE_MS", 0)


def joins_whatever_became_of_the_adoption(patch: Patch) -> None:
    """The multis of a join check the registration's parents only (F92)."""
    original = Joining._adopted
    patch.setattr(Joining, "_adopted", lambda self: None if original(self) is None else ())


JOINS = scenes.test_an_old_one_joins_a_coordinated_group_at_its_first_tries_and_leaves_it_coordinated
HUNG = scenes.test_f97_a_hung_application_of_ours_costs_no_old_member_its_share
FOREIGN = scenes.test_beside_another_library_no_consumer_of_ours_registers_and_it_does_once_that_has_gone


RESET = old_commits.test_f133_a_reset_of_what_no_old_member_had_is_adopted_however_soon_after_the_claim
SOON = old_commits.test_f326_a_reset_is_adopted_soon_after_a_join_if_no_old_member_had_the_partition_lately
EMPTY = test_modes.test_a_registration_that_nobody_can_read_is_waited_for_and_observed_ten_seconds_later
slow = test_beside.test_f100_a_slow_program_is_released_in_time_for_the_last_try_of_an_old_joiner
second_join = partial(
    test_beside.test_f100_a_second_join_gives_a_slow_program_no_more_time_than_the_first_joiner_has, later_ms=1_500
)
cut_off = partial(test_mixed_ranges.cut_off_in_a_batch, store="zookeeper")
cut_off_early = partial(test_mixed_ranges.cut_off_before_its_start, store="zookeeper")
stolen = partial(test_stolen_ranges.announced_without_its_claim, store="zookeeper")
left = partial(test_mixed_ranges.left_to_one_that_never_starts, coordinators=1)
released = test_adoption.test_f92_a_release_between_the_steps_of_a_join_keeps_the_consumer_out


def late(seed: int) -> None:
    """An old member that hung commits offsets of partitions that the coordinator has granted to others."""
    assert old_commits.hung_until_coordinated(seed).world.events("foreign_offset") == []


def alone(seed: int) -> None:
    """The group has no coordinator."""
    scenes.test_a_consumer_of_ours_joins_old_ones_and_leaves_them_and_all_is_read_by_one_each_time(seed, 0)


CASES = (
    Case(coordinates_beside_old_members, JOINS),
    Case(keeps_what_the_plan_gives_to_others, JOINS),
    Case(waits_for_the_application, HUNG),
    Case(claims_nothing, alone),
    Case(claims_without_its_registration, alone),
    Case(plans_by_its_own_members_only, alone),
    Case(plans_with_internal_topics, test_beside_storms.beside.__wrapped__, 40, first=9),
    Case(registers_beside_anybody, FOREIGN),
    Case(forgets_what_others_announced, scenes.batches_across_a_kill, 12),
    Case(looks_at_dead_members_only, partial(cut_off, loses=False), 2),
    Case(looks_at_dead_members_only, partial(cut_off, loses=True), 2),
    Case(looks_before_its_claim, partial(cut_off_early, claimed=False), 2),
    Case(looks_once, partial(cut_off_early, claimed=True), 2),
    Case(tells_an_application_the_offset_once, partial(cut_off_early, claimed=True), 2),
    Case(announces_whatever_became_of_its_claims, partial(stolen, started=True), 2),
    Case(starts_whatever_others_announce, partial(stolen, started=False), 2),
    Case(takes_a_claim_for_a_start, partial(left, store="zookeeper", coordinated=False), 2),
    Case(takes_a_claim_for_a_start, partial(left, store="kafka", coordinated=True), 2),
    Case(
        claims_with_the_generation_of_its_starts,
        partial(test_stolen_ranges.claimed_with_a_later_range, store="dual"),
        2,
    ),
    Case(obeys_starts_without_a_look, partial(test_stolen_ranges.commanded_before_the_old_member, store="dual"), 2),
    Case(
        takes_a_topic_without_subscribers_for_gone,
        partial(test_stolen_ranges.left_to_old_members_alone, store="dual"),
        2,
    ),
    Case(claims_without_a_word, partial(test_stolen_ranges.deleted_as_the_old_members_go, store="zookeeper"), 2),
    Case(takes_the_node_for_the_offset, partial(left, store="kafka", coordinated=True, goal="dual"), 2),
    Case(knows_no_incarnation, test_mixed_ranges.created_again_after_a_death),
    Case(takes_late_commits_for_resets, late),
    Case(takes_resets_for_late_commits, RESET),
    Case(reads_no_notes, old_commits.joined_after_the_old_one),
    Case(forgets_the_notes_of_the_last_coordinator, old_commits.joined_after_the_old_one, 2),
    Case(trusts_no_notes, SOON),
    Case(gives_the_time_of_the_last_change, second_join),
    Case(gives_twice_the_time, slow),
    Case(waits_for_no_registration, EMPTY),
    Case(joins_whatever_became_of_the_adoption, partial(released, step="join")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_each_rule_about_mixed_groups_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
