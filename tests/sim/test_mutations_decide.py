"""The simulator can fail: if a rule of a member's decisions is taken away, one of a stated number of seeds fails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.sim import test_early_release as early
from tests.sim import test_failures_quarantine as quarantine
from tests.sim import test_late_commits as late_commits
from tests.sim import test_resuming as resuming
from tests.sim import test_unknown_commits as unknown
from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.scenarios import storm
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import commits, compare, decide, starts, stops
from zkcoord.core.member.decisions import AcknowledgeStarts, AskStop, ReleasePartitions
from zkcoord.core.member.requests import Asked, CommitRequest


def every_offset_is_its_own(patch: Patch) -> None:
    """An offset that somebody else wrote is taken for the own write."""
    original = compare._compared

    def compared(*given: Any) -> compare.Compared:
        found = original(*given)
        return found._replace(foreign={})

    patch.setattr(compare, "_compared", compared)


def what_another_owns_is_held_on(patch: Patch) -> None:
    """A partition whose owner is not this thread any more is not let go."""
    original = compare._compared

    def compared(*given: Any) -> compare.Compared:
        return original(*given)._replace(gone=set())

    patch.setattr(compare, "_compared", compared)


def commits_what_was_decided_before_a_restart(patch: Patch) -> None:
    """A commit counts whatever start its offsets were decided under."""
    original = commits.commits

    def committed(view: Any, memory: Any, *rest: Any) -> Any:
        running = view.application.running
        requests = tuple(
            Asked(n, CommitRequest(request.offsets, running))
            if isinstance(request, CommitRequest)
            else Asked(n, request)
            for n, request in view.requests
        )
        return original(fast_replace(view, requests=requests), memory, *rest)

    patch.setattr(decide.commits, "commits", committed)


def stops_without_asking(patch: Patch) -> None:
    """What is told to stop is released, and the application is not told."""
    original = stops.begin

    def begin(*given: Any) -> Any:
        decisions, memory = original(*given)
        asked = any(isinstance(decision, AskStop) for decision in decisions)
        return [], fast_replace(memory, stop=fast_replace(memory.stop, answered=True)) if asked else memory

    patch.setattr(stops, "begin", begin)


def gives_nothing_back(patch: Patch) -> None:
    """What the application could not start is acknowledged, and its owner stays."""
    original = starts._acknowledge

    def acknowledge(*given: Any) -> Any:
        (decision,), memory = original(*given)
        assert isinstance(decision, AcknowledgeStarts)
        return [replace(decision, refused={})], memory

    patch.setattr(starts, "_acknowledge", acknowledge)


def leaves_with_a_range_that_is_not_done(patch: Patch) -> None:
    """What was announced and not finished is released before the session ends."""
    patch.setattr(stops, "standing", lambda held, batch: {})


def writes_beside_a_write(patch: Patch) -> None:
    """A multi is decided on while what another has done is not known."""
    for module in (commits, starts, stops, compare):
        patch.setattr(module, "at_rest", lambda view, memory: view.settled)


def drops_the_final_offset(patch: Patch) -> None:
    """A release writes no offset."""
    original = stops.advance

    def advance(*given: Any) -> Any:
        decisions, memory = original(*given)
        return [fast_replace(d, offsets={}) if isinstance(d, ReleasePartitions) else d for d in decisions], memory

    patch.setattr(stops, "advance", advance)


overwritten = resuming.test_f66_an_offset_found_overwritten_during_a_stop_stays_and_is_not_revived
late = late_commits.test_a_commit_of_an_earlier_tenure_is_refused_however_late_it_is_asked_for
unfinished = early.test_a_leaving_member_hands_its_unfinished_range_on
unanswered = unknown.test_a_stop_behind_a_commit_without_an_answer_releases_at_the_final_offset

CASES = (
    Case(stops_without_asking, partial(unanswered, how=unknown.LOST[0])),
    Case(what_another_owns_is_held_on, storm, 80, first=4),
    Case(every_offset_is_its_own, overwritten),
    Case(drops_the_final_offset, partial(unanswered, how=unknown.LOST[0])),
    Case(commits_what_was_decided_before_a_restart, partial(late, late="after it was told to start")),
    Case(commits_what_was_decided_before_a_restart, late_commits.late_storm, 40, first=13),
    Case(leaves_with_a_range_that_is_not_done, unfinished),
    Case(
        gives_nothing_back,
        quarantine.test_f45_a_partition_that_nobody_can_start_is_quarantined_and_everything_else_is_read,
    ),
    Case(writes_beside_a_write, partial(unanswered, how=unknown.LOST[0])),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
