"""A storm with members of the draft: one is evicted when its deletion is on its way, in a world of slow servers."""

from __future__ import annotations

from tests.sim.test_churn import draft


def test_a_slow_world_of_many_members_comes_to_rest_and_a_late_deletion_is_no_foreign_one() -> None:
    draft(802153)
