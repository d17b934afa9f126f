"""Coordinated groups of the layout `legacy` have the features of groups in the layout `draft`, by the same code. These
tests play the same scenes with claims."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.sim import (
    test_announcing,
    test_assignors,
    test_eager,
    test_failures_instances,
    test_failures_liveness,
    test_failures_quarantine,
    test_failures_topics,
    test_group_life,
    test_racks,
    test_replay,
    test_resets,
)
from tests.sim.actors import GROUP
from tests.sim.script import Script, seeds
from zkcoord.tree.paths import LEGACY

Play = Callable[[int], None]

instances, replay, life, topics = test_failures_instances, test_replay, test_group_life, test_failures_topics
restart = instances.test_a_rolling_restart_of_ten_static_members_moves_nothing
second_death = replay.test_f49_a_second_death_before_the_receiver_announced_loses_no_range
FEATURES: dict[str, tuple[Any, ...]] = {
    "eager groups": (
        test_eager.test_a_join_stops_every_partition_before_any_starts,
        test_eager.test_a_failover_in_the_middle_of_the_stops_goes_on_where_it_stood,
    ),
    "static members": (
        partial(restart, clean=False),
        instances.test_a_share_is_held_over_a_failover_and_given_on_when_nobody_comes,
        instances.test_f40_a_fixed_name_used_by_two_processes_leaves_the_newer_and_ends_the_older,
    ),
    "changes of subscription": (instances.test_a_second_registration_that_replaces_the_first_moves_the_minimum,),
    "quarantine": (
        test_failures_quarantine.test_f45_a_partition_that_nobody_can_start_is_quarantined_and_everything_else_is_read,
    ),
    "announced ranges": (
        test_announcing.test_more_ranges_than_one_announcement_takes_are_processed_after_a_hand_on,
        partial(replay.test_a_dead_members_range_goes_to_the_next_reader_exactly, failover=True),
        partial(second_death, when="after", failover=True),
        partial(replay.test_a_stop_in_the_middle_of_a_batch_hands_the_range_on, how="leave"),
        replay.test_an_evicted_members_range_is_handed_on_after_its_grace,
    ),
    "hold": (life.test_a_held_group_stops_nobody_for_a_joiner_and_replaces_the_dead,),
    "pause": (
        life.test_a_paused_group_stands_still_through_joins_deaths_and_a_failover,
        life.test_interrupted_moves_go_on_after_a_pause,
    ),
    "resets": (test_resets.test_nobody_reads_while_a_reset_writes_and_all_go_on_from_its_offsets,),
    "failed groups": (life.test_a_failed_group_stays_failed_over_a_failover_until_it_changes,),
    "probes": (
        test_failures_liveness.test_f06_a_member_that_is_alive_in_zookeeper_and_stalled_is_evicted_with_the_reason,
        test_failures_liveness.test_f06_probes_do_no_harm_to_who_works_and_are_not_sent_unasked,
    ),
    "weights, capacities and budgets": (
        test_assignors.test_weights_that_are_changed_move_the_group_to_even_sums,
        test_assignors.test_new_partitions_do_not_go_beyond_a_capacity_while_a_share_waits,
        test_assignors.test_a_budget_moves_so_much_a_generation_under_a_join_and_a_failover,
    ),
    "racks": (test_racks.test_partitions_go_to_the_racks_of_their_replicas_and_a_failover_finds_the_same,),
    "topics that are created again": (
        topics.test_f41_a_topic_created_again_between_two_reads_with_the_same_partitions_is_another,
        partial(
            topics.test_f41_work_begun_for_a_recreated_topic_is_finished_by_any_survivor,
            after_ms=5,
            disturbance="failover",
        ),
    ),
    "deleted topics": (
        topics.test_a_deleted_topic_is_released_at_once_and_its_nodes_go_after_a_while,
        topics.test_a_deleted_topics_nodes_go_though_nobody_wants_the_topic,
    ),
}
PLAYS = [pytest.param(play, id=f"{name} {n}") for name, plays in FEATURES.items() for n, play in enumerate(plays)]


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted scenes, and the paths that they name, are of the layout legacy."""
    monkeypatch.setattr(Script.__init__, "__kwdefaults__", {**(Script.__init__.__kwdefaults__ or {}), "layout": LEGACY})
    for name in [name for name in sys.modules if name.startswith("tests.sim.test_")]:
        monkeypatch.setattr(sys.modules[name], "DRAFT", LEGACY, raising=False)
    monkeypatch.setattr(topics, "MARK", LEGACY.mark(GROUP, "t"))


@pytest.mark.usefixtures("claims")
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("play", PLAYS)
def test_a_coordinated_group_with_claims_can_what_one_of_the_layout_draft_can(play: Play, seed: int) -> None:
    play(seed=seed)  # type: ignore[call-arg]


@pytest.mark.usefixtures("claims")
@pytest.mark.parametrize("seed", seeds(6))
def test_f134_a_member_that_leaves_is_sent_no_stop_for_what_it_has_given_up(seed: int) -> None:
    """Claims are deleted with the registration. If they were deleted before, it would look as if somebody took them
    from a member that reads on."""
    restart(seed=seed, clean=True)
