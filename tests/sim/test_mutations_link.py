"""The simulator can fail: if a rule of links and leases is taken away, one of a stated number of seeds fails."""

from __future__ import annotations

from functools import partial

import pytest

from tests.shell import test_loop as loops
from tests.sim import test_failures_flaps as flaps
from tests.sim import test_failures_giving_up as giving_up
from tests.sim import test_failures_hung_servers as hung_servers
from tests.sim import test_lease as leases
from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.test_flapping import flapping
from zkcoord.member.calls import Calls
from zkcoord.member.member_watch import MemberWatch
from zkcoord.member.role import MembershipRole
from zkcoord.shell.hearing import Hearing
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CommitDone, SyncDone
from zkcoord.shell.role import Role
from zkcoord.shell.session_state import SessionState


def an_answer_extends_before_the_registration_is_seen(patch: Patch) -> None:
    """A sync extends the lease though the watch on the registration is gone (F55)."""
    patch.setattr(MemberWatch, "stands", property(lambda self: True))


def nobody_leaves_a_silent_server(patch: Patch) -> None:
    """Only kazoo's heartbeats tell that a server is silent (F56)."""
    patch.setattr(Hearing, "leave_at_ms", lambda self, now_ms, awaits: None)


def an_unknown_outcome_is_an_answer(patch: Patch) -> None:
    """Every outcome extends the lease, as if a server had answered."""
    patch.setattr(CommitDone, "answered", True)


def any_sync_opens_the_gate(patch: Patch) -> None:
    """Reads do not wait for the sync that was sent for them."""
    original = Loop._take_sync

    def take(self: Loop, role: Role, session: SessionState, done: SyncDone, now_ms: int) -> None:
        if done.ok:
            session.gate = None
        original(self, role, session, done, now_ms)

    patch.setattr(Loop, "_take_sync", take)


def a_broken_gate_stays_shut(patch: Patch) -> None:
    """A gate whose sync was not answered is not asked for again."""
    original = Loop._take_sync

    def take(self: Loop, role: Role, session: SessionState, done: SyncDone, now_ms: int) -> None:
        if done.ok:
            original(self, role, session, done, now_ms)
        else:
            session.syncs.pop(done.token)

    patch.setattr(Loop, "_take_sync", take)


def allowed_whatever_the_lease_is(patch: Patch) -> None:
    """What runs may be read until the loop says otherwise."""
    patch.setattr(MembershipRole, "allowed", lambda self, partition, now_ms: partition in self.readable)


def a_session_is_given_up_at_once(patch: Patch) -> None:
    """Nobody waits until the application has obeyed `lost` (F57)."""
    patch.setattr(Calls, "reading", False)


another_sync = loops.test_the_answer_to_another_sync_does_not_open_the_gate
broken_gate = loops.test_a_gate_that_was_not_answered_is_asked_for_again

CASES = (
    Case(
        an_answer_extends_before_the_registration_is_seen,
        partial(flaps.test_f55_an_evicted_consumer_whose_link_breaks_again_stops_before_another_begins, 1, 2_700),
    ),
    Case(an_answer_extends_before_the_registration_is_seen, flapping.__wrapped__, 10),
    Case(
        nobody_leaves_a_silent_server,
        hung_servers.test_f56_a_member_that_holds_nothing_leaves_a_server_that_answers_nothing,
    ),
    Case(nobody_leaves_a_silent_server, flapping.__wrapped__, 20, first=10),
    Case(an_unknown_outcome_is_an_answer, leases.test_an_outcome_that_no_server_gave_extends_no_lease),
    Case(any_sync_opens_the_gate, lambda seed: another_sync()),
    Case(a_broken_gate_stays_shut, lambda seed: broken_gate()),
    Case(allowed_whatever_the_lease_is, leases.test_nothing_may_be_read_beyond_the_lease_though_its_loop_comes_late),
    Case(
        a_session_is_given_up_at_once,
        giving_up.test_f57_nobody_starts_what_a_consumer_gives_up_before_its_application_has_obeyed_lost,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
