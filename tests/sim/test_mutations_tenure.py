"""Each clause of the rule of the tenure, and each rule of the steps between stores, is taken away, and a scene must
fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.core import test_stores as told
from tests.sim import test_equality as equality
from tests.sim import test_failures_stores as failures
from tests.sim import test_store_tool as tool
from tests.sim import test_tenure_rules as rules
from tests.sim.mutations import Case, Patch, must_be_missed
from zkcoord.core import reconcile, stores, tenure
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member import mirroring, start_offsets
from zkcoord.core.member.status import Store
from zkcoord.core.tenure import NOTHING, Tenure
from zkcoord.offsets import equality as equalities
from zkcoord.operating import store_migration
from zkcoord.operating.store_migration import Migration


def believes_commits_about_earlier_topics(patch: Patch) -> None:
    """A commit about an earlier topic of that name counts where there is no node."""
    patch.setattr(tenure, "of_earlier_incarnation", lambda commit, incarnation: False)


def takes_any_tree_for_its_own(patch: Patch) -> None:
    """A tenure is a number of a transaction, whichever tree's."""

    def in_tenure(node: Any, commit: Any, tree: str) -> bool:
        stamp = commit.stamp
        return node is not None and stamp is not None and stamp.tenure == Tenure(stamp.tenure.tree, node.mzxid)

    patch.setattr(tenure, "in_tenure", in_tenure)


def starts_anew_without_a_node(patch: Patch) -> None:
    """Where there is no node the reset policy decides."""
    original = start_offsets.counted

    def counted(rule: Any, node: Any, *rest: Any, **named: Any) -> Any:
        return NOTHING if node is None else original(rule, node, *rest, **named)

    patch.setattr(start_offsets, "counted", counted)


def reads_kafka_in_zookeeper(patch: Patch) -> None:
    """The store `zookeeper` is read as the others are."""
    patch.setattr(Store, "tenured", property(lambda self: True))


def commits_nothing_again(patch: Patch) -> None:
    """What does not move has no checkpoint, and Kafka forgets it."""
    original = mirroring.renew

    def renew(view: Any, memory: Any, now_ms: int) -> Any:
        return original(view, fast_replace(memory, mirror=fast_replace(memory.mirror, due_ms=None)), now_ms)

    patch.setattr(mirroring, "renew", renew)


def grants_to_whoever_is_at_another_store(patch: Patch) -> None:
    """A start may name another store than its receiver's."""
    patch.setattr(reconcile, "may_start", lambda view, consumer_id: True)


def takes_a_step_for_done(patch: Patch) -> None:
    """The next step is taken though a member has not said that it has come to this one."""
    patch.setattr(store_migration, "lagging", lambda view: {})


def overlooks_starts_in_another_store(patch: Patch) -> None:
    """A step is done by statuses alone."""
    patch.setattr(stores, "START", "none")


def is_content_with_equal_numbers(patch: Patch) -> None:
    """Offsets are equal by their values, of whichever tenure."""
    patch.setattr(equalities, "in_tenure", lambda node, commit, tree: True)


def leaves_dual_at_once(patch: Patch) -> None:
    """The step away from `dual` waits for no equality."""
    patch.setattr(Migration, "_not_equal", lambda self, view, goal, now_ms: "")


def without_a_seed(play: Callable[[], object]) -> Callable[[int], object]:
    """Play a test that draws nothing."""
    return lambda seed: play()


EARLIER = failures.test_f125_commits_for_an_earlier_topic_of_that_name_do_not_count
ANOTHER_TREE = rules.test_a_commit_of_another_tree_does_not_count_though_its_transaction_has_the_same_number
GRANTED = told.test_a_partition_is_granted_once_its_receiver_has_come_to_the_records_store
WAITED = tool.test_an_undone_step_delays_the_next_and_leaves_the_way_back_open
DONE = told.test_a_step_is_done_when_every_status_says_it_and_no_start_names_another_store
TENURE = equality.test_a_commit_of_an_earlier_tenure_is_not_equal_though_its_offset_is

CASES = (
    Case(believes_commits_about_earlier_topics, partial(EARLIER, "kafka", False), 2),
    Case(takes_any_tree_for_its_own, partial(ANOTHER_TREE, "kafka")),
    Case(starts_anew_without_a_node, partial(rules.test_without_a_node_what_kafka_has_counts, "kafka")),
    Case(reads_kafka_in_zookeeper, rules.test_in_the_store_zookeeper_nobody_asks_kafka),
    Case(commits_nothing_again, failures.test_f121_a_resting_offset_is_committed_again_before_it_expires),
    Case(grants_to_whoever_is_at_another_store, without_a_seed(GRANTED)),
    Case(takes_a_step_for_done, without_a_seed(WAITED)),
    Case(overlooks_starts_in_another_store, without_a_seed(DONE)),
    Case(is_content_with_equal_numbers, without_a_seed(TENURE)),
    Case(
        leaves_dual_at_once,
        partial(tool.test_a_group_without_members_is_moved_the_whole_way_and_keeps_its_offsets, goal="kafka"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_each_clause_of_the_rule_of_the_tenure_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
