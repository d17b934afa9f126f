"""Each rule about groups with old members is taken away, and a scene of such a group must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.sim import test_adoption as adoption
from tests.sim import test_failures_claims as claims
from tests.sim import test_mixed_rules as rules
from tests.sim.mutations import Case, Patch, must_be_missed
from zkcoord.core import beside, coordinate
from zkcoord.core.beside import OnLooker
from zkcoord.core.member import starts
from zkcoord.core.record import PAUSE, RESET
from zkcoord.core.requests import responses
from zkcoord.core.topics import drops
from zkcoord.core.view import GroupView
from zkcoord.legacy import modes
from zkcoord.legacy.clients import Client, Library
from zkcoord.member import role as membership
from zkcoord.member.joining import Joining
from zkcoord.serving import election
from zkcoord.serving.group_watch import ROOTS, GroupWatch, roots
from zkcoord.tree.paths import Layout


def serves_what_is_not_adopted(patch: Patch) -> None:
    """A coordinator reads and serves every group that it finds."""

    def read(self: GroupWatch) -> None:
        if not self.whole:
            self.whole = True
            self.wants.follow(ROOTS, roots(self.group, self.layout))

    patch.setattr(GroupWatch, "read_when_adopted", read)
    patch.setattr(GroupView, "observed", property(lambda self: False))


def registers_where_nobody_has_adopted(patch: Patch) -> None:
    """A consumer joins any group."""
    patch.setattr(Joining, "_adopted", lambda self: ())


def drops_topics_beside_old_members(patch: Patch) -> None:
    """What belongs to a topic that was deleted or created again goes, whoever reads it (F96)."""
    original = coordinate._beside_old_members

    def decide(view: Any, memory: Any, now_ms: int) -> Any:
        seen = original(view, memory, now_ms)
        more = drops(view, memory.topics, lambda owner: True, memory.holders.astray, now_ms)
        return replace(seen, decisions=(*seen.decisions, *more))

    patch.setattr(coordinate, "_beside_old_members", decide)


def renews_no_marks(patch: Patch) -> None:
    """A group is coordinated with the marks of before the old members (F96)."""
    patch.setattr(beside, "recreated", lambda view: ())


def keeps_parents_for_itself(patch: Patch) -> None:
    """What is made below /consumers has the ACL that is configured."""
    patch.setattr(Layout, "shared", lambda self, path: False)


def sets_the_layout_draft_up_anywhere(patch: Patch) -> None:
    """Old consumers' groups are no reason against it."""
    patch.setattr(election, "old_consumers", lambda brokers, registrations: None)


def knows_its_own_by_the_marker_alone(patch: Patch) -> None:
    """A registration with the marker is one of ours, whatever its name."""
    patch.setattr(modes, "named_as_ours", lambda group, consumer_id: True)


def knows_its_own_by_the_name_alone(patch: Patch) -> None:
    """A name as ours have it is one of ours, whatever stands in its registration."""
    original: Callable[..., Client] = modes.client_of

    def client_of(group: str, consumer_id: str, *rest: Any) -> Client:
        found = original(group, consumer_id, *rest)
        return found._replace(library=Library.ZKCOORD) if modes.named_as_ours(group, consumer_id) else found

    patch.setattr(modes, "client_of", client_of)


def takes_a_poke_for_a_member(patch: Patch) -> None:
    """A registration that subscribes to nothing counts as an old member's."""
    patch.setattr(modes, "_subscribes_to_nothing", lambda data: False)


def evicts_nobody_for_the_plan(patch: Patch) -> None:
    """One of ours keeps what old members wait for (F94)."""
    patch.setattr(OnLooker, "overdue", lambda self, view, now_ms: [])


def leaves_the_evicted_their_claims(patch: Patch) -> None:
    """Claims of a session that goes on stand for ever (F99)."""
    patch.setattr(coordinate, "claims_to_delete", lambda view, timeouts, now_ms: [])


def carries_requests_out_beside_old_members(patch: Patch) -> None:
    """A request is answered as in a coordinated group."""

    def answered(view: Any, looker: Any, now_ms: int) -> Any:
        return responses(view, lambda owner: True, waiting=False), looker

    patch.setattr(coordinate, "responses_beside", answered)


def acknowledges_by_any_record(patch: Patch) -> None:
    """The multi that acknowledges a claim does not check the record."""
    original = starts._acknowledge

    def acknowledge(*given: Any) -> Any:
        decisions, memory = original(*given)
        return [replace(decision, record_version=None) for decision in decisions], memory

    patch.setattr(starts, "_acknowledge", acknowledge)


def closes_its_session_before_the_application_has_stopped(patch: Patch) -> None:
    """A registration that is given up frees its claims at once."""
    patch.setattr(membership, "open_until_ms", lambda lease, registered, now_ms: now_ms)


def frees_the_claims_of_one_without_a_registration(patch: Patch) -> None:
    """Claims end at once when their consumer's registration is gone, as if others could not have the partitions."""
    original = membership.open_until_ms

    def until_ms(lease: Any, registered: Any, now_ms: int) -> int:
        gone = registered is not None and registered.watch.unregistered
        return now_ms if gone else original(lease, registered, now_ms)

    patch.setattr(membership, "open_until_ms", until_ms)


UNADOPTED = adoption.test_nothing_of_a_group_that_is_not_adopted_is_written_and_no_consumer_registers
RELEASED = adoption.test_f93_a_coordinator_writes_nothing_of_a_released_group_until_it_is_adopted_again
REQUESTS = rules.test_an_unfit_request_beside_an_old_member_is_refused_and_all_is_read_on
PARENTS = adoption.test_nodes_below_consumers_are_open_but_owners_and_offsets_are_not
RECREATED = rules.test_f96_a_recreated_topics_offsets_beside_old_members_outlive_the_coordination
KEPT = rules.test_f94_a_member_that_keeps_an_old_members_share_is_evicted_and_the_old_one_poked
HANGS = rules.test_f99_an_evicted_consumers_claims_beside_old_members_go_after_its_grace

MAY_READ = claims.test_f89_an_evicted_consumers_claims_stand_while_its_application_may_read
MAY_STILL_READ = rules.test_f89_no_old_member_claims_what_an_application_without_a_registration_may_still_read


def patched(play: Callable[..., object], seed: int) -> None:
    """A scene that makes its own patches."""
    with pytest.MonkeyPatch.context() as patch:
        play(seed, patch)


CASES = (
    Case(serves_what_is_not_adopted, RELEASED, 3),
    Case(registers_where_nobody_has_adopted, UNADOPTED, 3),
    Case(drops_topics_beside_old_members, RECREATED, 3),
    Case(renews_no_marks, RECREATED, 3),
    Case(keeps_parents_for_itself, PARENTS),
    Case(
        sets_the_layout_draft_up_anywhere,
        partial(adoption.test_the_layout_draft_is_not_set_up_where_old_consumers_are, layout=adoption.DRAFT),
    ),
    Case(knows_its_own_by_the_marker_alone, rules.test_a_registration_with_the_marker_alone_is_an_old_members),
    Case(knows_its_own_by_the_name_alone, partial(patched, rules.test_a_name_as_one_of_ours_alone_is_an_old_members)),
    Case(
        takes_a_poke_for_a_member,
        rules.test_a_poke_that_stands_in_a_coordinated_group_changes_neither_its_mode_nor_anything_else,
    ),
    Case(evicts_nobody_for_the_plan, partial(patched, KEPT)),
    Case(leaves_the_evicted_their_claims, partial(patched, HANGS), 3),
    *(Case(carries_requests_out_beside_old_members, partial(REQUESTS, name=name)) for name in (PAUSE, RESET)),
    Case(
        acknowledges_by_any_record,
        rules.test_a_claim_is_not_acknowledged_by_a_record_that_has_changed_since_it_was_read,
    ),
    Case(closes_its_session_before_the_application_has_stopped, MAY_READ),
    Case(frees_the_claims_of_one_without_a_registration, MAY_READ),
    Case(frees_the_claims_of_one_without_a_registration, partial(MAY_STILL_READ, answers=False)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_each_rule_about_groups_beside_old_members_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
