"""The storms of resets can fail: if a rule of a reset is taken away, one of a stated number of seeds fails."""

from __future__ import annotations

import pytest

from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.test_mutations_stores import a_start_believes_kafka
from tests.sim.test_reset_storms import resetting_storm
from zkcoord.core import requests
from zkcoord.operating import resetting


def a_reset_is_answered_while_somebody_reads(patch: Patch) -> None:
    """Offsets may be written as soon as it is requested."""
    patch.setattr(requests, "_nobody_reads", lambda view, available: True)


def a_reset_writes_whatever_became_of_its_run(patch: Patch) -> None:
    """No write checks the record: the group may have been let go on."""
    write = resetting.Reset.write
    patch.setattr(resetting.Reset, "write", lambda self, guard: write(self, ()))


def a_reset_leaves_commits_of_other_programs(patch: Patch) -> None:
    """One that is behind is followed once its partition has started."""
    patch.setattr(resetting._Wanted, "to_kafka", lambda self, offsets: None)


storm = resetting_storm.__wrapped__  # uncached: each one is played again

CASES = (
    Case(a_reset_is_answered_while_somebody_reads, storm, 10),
    Case(a_reset_writes_whatever_became_of_its_run, storm, 40),
    Case(a_reset_leaves_commits_of_other_programs, storm, 40, first=9),
    Case(a_start_believes_kafka, storm, 20),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
