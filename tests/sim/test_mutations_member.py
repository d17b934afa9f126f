"""The simulator can fail: if a rule of a consumer is taken away, one of a stated number of seeds fails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.sim import test_failures_input as bad_input
from tests.sim import test_failures_sessions as sessions
from tests.sim.mutations import Case, Patch, group_storm, must_be_missed
from tests.sim.scenarios import announcing_storm
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.status import MemberStatus
from zkcoord.core.member.view import MemberView
from zkcoord.member.lease import Lease
from zkcoord.member.role import MembershipRole
from zkcoord.shell.tracker import Tracker
from zkcoord.tree import member
from zkcoord.tree.writes import CheckNode, DeleteNode, Transaction


def no_check_of_ids(patch: Patch) -> None:
    """A consumer's writes are not fenced by its registration (rule 1)."""
    patch.setattr(member.MemberPaths, "check", lambda self: CheckNode("/zkcoord", 0))


def one_name_for_ever(patch: Patch) -> None:
    """A process registers under the same name each time (rule 1)."""
    original = MembershipRole.__init__

    def init(self: MembershipRole, loop: Any, settings: Any, *rest: Any) -> None:
        name = settings.new_id().split("-")[0] + "-1-00000000"
        original(self, loop, replace(settings, new_id=lambda: name), *rest)

    patch.setattr(MembershipRole, "__init__", init)


def a_lease_for_ever(patch: Patch) -> None:
    """Reading does not end with the lease (rule 7)."""
    patch.setattr(Lease, "holds", lambda self, now_ms: True)


def a_lease_from_the_answer_on(patch: Patch) -> None:
    """The lease counts from an answer's arrival, not from its question's sending (rule 7)."""
    original = MembershipRole.synced
    patch.setattr(MembershipRole, "synced", lambda self, sent_ms, now_ms: original(self, now_ms + 6_000, now_ms))


def calls_are_counted_anew(patch: Patch) -> None:
    """A late answer has the number of a call of the new session (F13)."""
    original = MembershipRole._forget

    def forget(self: MembershipRole) -> None:
        original(self)
        self._calls._tokens = count(1)

    patch.setattr(MembershipRole, "_forget", forget)


def watches_are_taken_for_kept(patch: Patch) -> None:
    """After a broken link nothing is read again (F5)."""
    patch.setattr(Tracker, "touch_all", lambda self: None)


def nobody_watches_his_own_nodes(patch: Patch) -> None:
    """The own registration and channel may go unnoticed."""
    patch.setattr(MemberView, "gone", property(lambda self: False))


def deletes_what_it_does_not_understand(patch: Patch) -> None:
    """A refused command is deleted, which acknowledges it."""

    def refuse(paths: Any, command: Any, *rest: Any, **more: Any) -> Transaction:
        return Transaction(writes=(paths.check(), DeleteNode(command.path, command.stat.version)), why="refuse")

    patch.setattr(member, "refuse", refuse)


def announces_without_a_fence(patch: Patch) -> None:
    """An announcement does not check its registration (rule 1)."""
    original = member.announce

    def announce(*given: Any) -> Transaction:
        transaction = original(*given)
        return replace(transaction, writes=tuple(w for w in transaction.writes if not isinstance(w, CheckNode)))

    patch.setattr(member, "announce", announce)


def takes_nothing_over(patch: Patch) -> None:
    """A receiver does not write into its status what it was handed (F49)."""

    def saying(self: Memory, view: MemberView, held: Any = None) -> tuple[MemberStatus, Memory]:
        memory = fast_replace(self, batch={p: r for p, r in self.batch.items() if p in self.held})
        return memory.status(view, self.held if held is None else held), memory

    patch.setattr(Memory, "saying", saying)


CASES = (
    Case(no_check_of_ids, group_storm, 10),
    Case(takes_nothing_over, announcing_storm, 150, first=6),
    Case(announces_without_a_fence, announcing_storm),
    Case(one_name_for_ever, group_storm, 40, first=6),
    Case(
        a_lease_for_ever,
        partial(sessions.test_f15_a_consumer_stops_reading_before_its_session_can_expire, "black hole"),
    ),
    Case(
        a_lease_from_the_answer_on,
        partial(sessions.test_f15_a_consumer_stops_reading_before_its_session_can_expire, "black hole"),
    ),
    Case(calls_are_counted_anew, sessions.test_f13_a_callback_of_an_earlier_session_is_not_taken_for_the_present_one),
    Case(
        watches_are_taken_for_kept,
        sessions.test_f05_a_command_written_while_its_watch_was_lost_in_a_long_outage_is_read,
    ),
    Case(
        nobody_watches_his_own_nodes,
        sessions.test_f21_a_consumer_whose_own_channel_is_deleted_takes_its_session_for_ended,
    ),
    Case(
        deletes_what_it_does_not_understand,
        partial(bad_input.test_f48_a_command_from_the_future_is_refused_removed_and_frees_what_it_named, "version"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
