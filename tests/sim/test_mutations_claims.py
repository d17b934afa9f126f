"""The simulator can fail: if a rule about claims is taken away, one of a stated number of seeds fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.sim import test_failures_claims as failures
from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.test_claims import claiming
from zkcoord.core import coordinate, reconcile
from zkcoord.core import ownership as core_ownership
from zkcoord.core.member import ownership
from zkcoord.core.member.decisions import ClaimPartitions
from zkcoord.core.view import GroupView, Refusal
from zkcoord.member.member_watch import MemberWatch
from zkcoord.shell.tracker import Tracker
from zkcoord.tree import channel, evicted, whole_view
from zkcoord.tree.ownership import ClaimedOwners
from zkcoord.tree.snapshot import Kind, Want


def commits_without_their_claim(patch: Patch) -> None:
    """Commits and acknowledgements do not check that the claim stands."""
    patch.setattr(ClaimedOwners, "guard", lambda self, path, version: ())


def an_offset_that_is_not_set(patch: Patch) -> None:
    """An acknowledgement leaves an offset as it is: earlier claimants' commits go on."""
    patch.setattr(ownership, "sets_offset", lambda view, memory, at: at.offset is None)


def releases_without_a_fence(patch: Patch) -> None:
    """What writes no offset does not check its version."""
    patch.setattr(ClaimedOwners, "guard_free", lambda self, offset_path, version: ())


def claims_that_nobody_watches(patch: Patch) -> None:
    """A consumer does not see its claim vanish (F53)."""

    def claiming(self: Any, decision: ClaimPartitions) -> None:
        for partition in decision.partitions:
            self._tracker.touch(self._paths.offset(partition))

    patch.setattr(MemberWatch, "claiming", claiming)


def persistent_claims(patch: Patch) -> None:
    """A claim outlives its session."""
    original = ClaimedOwners.claim

    def claim(self: ClaimedOwners, path: str, thread: str) -> Any:
        made, told = original(self, path, thread)
        return [made._replace(ephemeral=False), told]  # type: ignore[call-arg]

    patch.setattr(ClaimedOwners, "claim", claim)


def lists_that_nobody_watches(patch: Patch) -> None:
    """A coordinator does not see claims come and go."""
    original = Tracker.want_all

    def want_all(self: Tracker, wants: Iterable[Want], scope: str) -> None:
        lists = [(want, want.kind is Kind.CHILDREN and "/owners/" in want.path) for want in wants]
        original(self, [want._replace(watch=want.watch and not listed) for want, listed in lists], scope)

    patch.setattr(Tracker, "want_all", want_all)


def marks_that_do_not_say_what_was_owned(patch: Patch) -> None:
    """What an evicted consumer had is granted as soon as its session is over."""
    encode = evicted.encode_evicted
    patch.setattr(channel, "encode_evicted", lambda session_timeout_ms, owned: encode(session_timeout_ms, ()))


def claims_of_the_evicted_that_stay(patch: Patch) -> None:
    """A session that goes on keeps its claims (F89)."""
    patch.setattr(coordinate, "claims_to_delete", lambda view, timeouts, now_ms: [])


def claims_of_the_evicted_that_go_at_once(patch: Patch) -> None:
    """A claim is deleted within its consumer's grace (F89)."""

    class NoGrace:
        def in_grace(self, view: GroupView, consumer_id: str, now_ms: int) -> bool:
            return False

    def delete(view: GroupView, timeouts: Any, now_ms: int) -> Any:
        return core_ownership.claims_to_delete(view, NoGrace(), now_ms)  # type: ignore[arg-type]

    patch.setattr(coordinate, "claims_to_delete", delete)


def starts_that_reserve_nothing(patch: Patch) -> None:
    """A partition that a start names is free until its receiver has claimed it. (The channel that names it is a second
    guard, by which such a partition counts as its receiver's.)"""
    original, grantable = whole_view.effective_owners, reconcile.grantable

    def free(view: GroupView, memory: Any, *rest: Any, **more: Any) -> Any:
        return grantable(view, replace(memory, holders=replace(memory.holders, astray={})), *rest, **more)

    patch.setattr(whole_view, "effective_owners", lambda claims, members, channels: original(claims, {}, channels))
    patch.setattr(reconcile, "grantable", free)


def claims_that_count_for_nothing(patch: Patch) -> None:
    """What a stranger claims is granted again and again (F88)."""
    patch.setattr(core_ownership, "claimed", lambda owner: False)


def taken_is_a_strike(patch: Patch) -> None:
    """Who found a partition taken is not asked again for a while (F88)."""
    patch.setattr(Refusal, "taken", property(lambda self: False))


STORM, SCENES = claiming.__wrapped__, failures
MISSED: Mapping[str, Case] = {
    "commits_without_their_claim": Case(commits_without_their_claim, STORM, 10),
    "an_offset_that_is_not_set": Case(an_offset_that_is_not_set, STORM, 10),
    "releases_without_a_fence": Case(releases_without_a_fence, STORM, 10),
    "claims_that_nobody_watches": Case(
        claims_that_nobody_watches,
        SCENES.test_f53_a_claim_that_somebody_deleted_is_read_by_nobody_until_another_start_gives_it,
    ),
    "persistent_claims": Case(persistent_claims, STORM, 10),
    "lists_that_nobody_watches": Case(
        lists_that_nobody_watches,
        SCENES.test_f88_a_partition_that_a_stranger_has_claimed_is_granted_as_soon_as_that_claim_is_gone,
    ),
    "marks_that_do_not_say_what_was_owned": Case(
        marks_that_do_not_say_what_was_owned,
        SCENES.test_f89_an_evicted_consumers_claims_are_deleted_after_its_grace_in_its_session,
    ),
    "claims_of_the_evicted_that_stay": Case(
        claims_of_the_evicted_that_stay,
        SCENES.test_f89_an_evicted_consumers_claims_are_deleted_after_its_grace_in_its_session,
    ),
    "claims_of_the_evicted_that_go_at_once": Case(
        claims_of_the_evicted_that_go_at_once,
        SCENES.test_f89_an_evicted_consumers_claims_are_deleted_after_its_grace_in_its_session,
    ),
    "starts_that_reserve_nothing": Case(
        starts_that_reserve_nothing,
        SCENES.test_a_started_partition_is_nobody_elses_while_its_receiver_is_frozen,
    ),
    "claims_that_count_for_nothing": Case(
        claims_that_count_for_nothing,
        SCENES.test_f88_a_partition_that_a_stranger_has_claimed_is_granted_as_soon_as_that_claim_is_gone,
    ),
    "taken_is_a_strike": Case(
        taken_is_a_strike,
        SCENES.test_f88_a_start_of_a_claimed_partition_is_refused_without_a_strike_and_retried,
    ),
}


@pytest.mark.parametrize("name", MISSED)
def test_a_rule_about_claims_is_missed(name: str) -> None:
    case = MISSED[name]
    must_be_missed(case.mutate, case.play, case.seeds)
