"""The simulator can fail: if a rule of a member that keeps offsets in Kafka is taken away, one of a stated number of
seeds fails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.core.member import test_kafka_store as kafka_store
from tests.core.member import test_kafka_strangers as kafka_strangers
from tests.sim import test_failures_offsets as offsets
from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.store_scene import store_storm
from tests.sim.test_program_stores import in_kafka as in_programs
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import mirroring, resume, start_offsets, starts, stops, switching
from zkcoord.core.member.decisions import AcknowledgeStarts, ReleasePartitions
from zkcoord.core.member.mirror import NO_MIRROR
from zkcoord.core.tenure import CommitOutcome, Foreign


def in_kafka(seed: int) -> None:
    """A storm over a group in the store `kafka`."""
    store_storm(seed, "kafka", steps=0)


def a_start_sets_no_node(patch: Patch) -> None:
    """A start's acknowledgement begins no tenure."""
    original = starts._acknowledge

    def acknowledge(view: Any, memory: Any, start: Any, granted: Any, standing: Any) -> Any:
        (decision,), memory = original(view, memory, start, granted, standing)
        assert isinstance(decision, AcknowledgeStarts)
        first = {p: begins for p, begins in decision.first.items() if granted[p].offset is None}
        return [replace(decision, first=first)], memory

    patch.setattr(starts, "_acknowledge", acknowledge)


def a_start_reads_the_node_alone(patch: Patch) -> None:
    """What Kafka has is not asked where a partition starts."""
    patch.setattr(start_offsets, "committed", lambda view, memory, start, partition, at: at.offset)


def a_start_believes_kafka(patch: Patch) -> None:
    """A commit of another tenure counts."""
    original = start_offsets.committed

    def committed(view: Any, memory: Any, start: Any, partition: Any, at: Any) -> Any:
        commit = start.commits.get(partition)
        return original(view, memory, start, partition, at) if commit is None else commit.offset

    patch.setattr(start_offsets, "committed", committed)


def a_release_keeps_the_tenure(patch: Patch) -> None:
    """A release sets only nodes whose offset changes, by what was acknowledged."""
    original = stops.advance

    def advance(*given: Any) -> Any:
        decisions, memory = original(*given)
        return [fast_replace(d, tenured=False) if isinstance(d, ReleasePartitions) else d for d in decisions], memory

    patch.setattr(stops, "advance", advance)


def a_commit_without_an_answer_is_taken_for_done(patch: Patch) -> None:
    """What became of it is not known, and the program is told that it is committed."""
    original = mirroring._committed

    def committed(view: Any, memory: Any, exchange: Any, outcome: CommitOutcome, now_ms: int) -> Any:
        return original(view, memory, exchange, CommitOutcome(done=frozenset(exchange.targets)), now_ms)

    patch.setattr(mirroring, "_committed", committed)


def a_commit_without_an_answer_ends_no_tenure(patch: Patch) -> None:
    """It may land late over a later one. (What waits for it is committed to its node only while Kafka fails.)"""
    patch.setattr(mirroring, "_doubting", lambda memory, partitions: memory.mirror)


def starts_again_while_a_commit_is_under_way(patch: Patch) -> None:
    """What is committed may still change under a start."""
    patch.setattr(resume, "unsettled", lambda memory: set())


def follows_strangers_forwards(patch: Patch) -> None:
    """A stranger's commit ahead is taken over, too."""
    original = mirroring.foreign

    def judged(position: int, commit: Any) -> Foreign:
        verdict = original(position, commit)
        return Foreign.ADOPT if verdict is Foreign.OVERWRITE else verdict

    patch.setattr(mirroring, "foreign", judged)


def looks_at_nothing(patch: Patch) -> None:
    """What a stranger has set back is written over."""
    patch.setattr(mirroring, "foreign", lambda position, commit: Foreign.IGNORE)


def follows_a_stranger_that_kafka_does_not_let_it_replace(patch: Patch) -> None:
    """A stranger's commit is taken over though Kafka refused the own one in its place."""
    original = mirroring._adopt

    def adopt(view: Any, memory: Any, exchange: Any, outcome: CommitOutcome) -> Any:
        return original(view, memory, exchange, CommitOutcome(unknown=outcome.refused))

    patch.setattr(mirroring, "_adopt", adopt)


def watches_no_node(patch: Patch) -> None:
    """A member that commits to Kafka does not see that somebody sets a node."""
    patch.setattr(mirroring, "follow", lambda memory: ([], memory))


def makes_no_checkpoint(patch: Patch) -> None:
    """The node of a partition that is held is never set."""
    original = mirroring.renew
    patch.setattr(
        mirroring,
        "renew",
        lambda view, memory, now_ms: original(
            view, fast_replace(memory, mirror=fast_replace(memory.mirror, due_ms=None)), now_ms
        ),
    )


def changes_the_store_and_sets_nothing(patch: Patch) -> None:
    """A change of the store is acknowledged, and every tenure goes on."""
    original = switching.begin

    def begin(memory: Any, sequence: str, command: Any) -> Any:
        changed = original(memory, sequence, command)
        return fast_replace(changed, switch=changed.switch._replace(before={}))

    patch.setattr(switching, "begin", begin)


def changes_the_store_while_a_commit_is_under_way(patch: Patch) -> None:
    """A change of the store does not wait for what Kafka has not answered yet."""
    original = switching.advance

    def advance(view: Any, memory: Any, sizes: Any) -> Any:
        blind = fast_replace(memory, mirror=fast_replace(memory.mirror, exchange=None))
        decisions, after = original(view, blind, sizes)
        if after.mirror is not NO_MIRROR:
            after = fast_replace(after, mirror=fast_replace(after.mirror, exchange=memory.mirror.exchange))
        return decisions, after

    patch.setattr(switching, "advance", advance)


in_doubt = kafka_store.test_f111_an_abandoned_commits_tenure_ends_before_the_partition_is_read_again
refused = kafka_strangers.test_f113_a_stranger_is_not_followed_while_kafka_refuses_commits
node_set = offsets.test_f112_a_reader_in_kafka_restarts_at_a_node_that_somebody_set
moved = offsets.test_f112_a_stranger_is_followed_though_its_group_is_moved_before_kafka_has_answered
kafka_to_dual = offsets.test_f114_a_change_of_the_store_sets_the_nodes_to_what_kafka_had
dead = offsets.test_f111_a_commit_of_a_dead_owner_that_lands_late_does_not_count
released = offsets.test_f110_a_released_offset_is_in_its_node_when_kafka_forgets_it
strangers = offsets.test_f112_a_stranger_behind_is_followed_and_one_ahead_is_written_over
lost = offsets.test_f110_a_commit_lost_by_kafka_costs_repeats_since_the_checkpoint_only

programs = in_programs.__wrapped__  # uncached: each one is played again

CASES = (
    Case(a_start_sets_no_node, partial(dead, store="kafka"), 10, first=3),
    Case(a_start_reads_the_node_alone, in_kafka, 5),
    Case(a_start_believes_kafka, in_kafka, 5),
    Case(a_start_believes_kafka, programs, 5),
    Case(a_release_keeps_the_tenure, released),
    Case(a_commit_without_an_answer_is_taken_for_done, in_kafka, 5),
    Case(a_commit_without_an_answer_is_taken_for_done, programs, 20, first=5),
    Case(a_commit_without_an_answer_ends_no_tenure, in_kafka, 40, first=12),
    Case(starts_again_while_a_commit_is_under_way, lambda seed: in_doubt()),
    Case(follows_strangers_forwards, strangers),
    Case(looks_at_nothing, strangers),
    Case(follows_a_stranger_that_kafka_does_not_let_it_replace, lambda seed: refused()),
    Case(watches_no_node, node_set),
    Case(makes_no_checkpoint, lost),
    Case(changes_the_store_and_sets_nothing, kafka_to_dual),
    Case(changes_the_store_while_a_commit_is_under_way, moved, 4),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
