"""Each rule about groups whose old members read Kafka is taken away, and a scene of such a group must fail."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.sim import test_beside_kafka as scenes
from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.test_beside_kafka import KafkaScene
from zkcoord.core.former_owners import FormerOwners
from zkcoord.core.member import commands, handing_over, sharing, start_offsets, stops
from zkcoord.core.member.neighbours import Neighbours
from zkcoord.core.tenure import Rule


def releases_without_a_commit_to_kafka(patch: Patch) -> None:
    """Final offsets stand in the node alone (F146)."""
    patch.setattr(stops, "hand_over", lambda view, memory, released, now_ms: (False, [], memory))


def waits_for_kafka_however_long(patch: Patch) -> None:
    """A release waits for Kafka's answer longer than old members wait (F147)."""
    for module in (handing_over, stops):
        patch.setattr(module, "over", lambda view, memory, now_ms: False)


def takes_late_commits_for_rewinds(patch: Patch) -> None:
    """A lower commit is followed, also when an old member had the partition just before (F148)."""
    patch.setattr(FormerOwners, "may_commit", lambda self, partition, now_ms: False)


def starts_at_the_node(patch: Patch) -> None:
    """Commits of old members do not count where ours has written the node before."""
    patch.setattr(start_offsets, "Rule", _OnlyTenures)


class _OnlyTenures:
    OLD_IN_KAFKA = TENURE = Rule.TENURE


def waits_for_a_change_of_the_store(patch: Patch) -> None:
    """What old members wait for is released, and a member leaves, after a change of the store that waits for Kafka
    (F346, F350)."""
    patch.setattr(sharing, "follow_plan", partial(_after_a_change, sharing.follow_plan))
    patch.setattr(commands, "take_next", partial(_after_a_change, commands.take_next))


def _after_a_change(original: Any, view: Any, memory: Any, *rest: Any) -> Any:
    return ([], memory) if memory.switch is not None else original(view, memory, *rest)


def registers_in_any_store(patch: Patch) -> None:
    """A consumer without brokers registers beside old members that read Kafka."""
    patch.setattr(Neighbours, "obstacle", property(lambda self: None))


REPLACED = scenes.test_a_group_is_replaced_member_by_member_and_goes_back_and_nothing_is_read_twice
joiner = scenes.test_f346_an_old_joiner_does_not_wait_for_a_change_of_the_store_that_waits_for_kafka
joiner_at_a_leave = (
    scenes.test_f350_an_old_joiner_does_not_wait_for_a_leave_behind_a_change_of_the_store_that_waits_for_kafka
)
replaced = partial(REPLACED, begin=lambda seed, **size: KafkaScene(seed, "kafka", **size))


def without_brokers(seed: int) -> None:
    """A consumer of ours that knows no brokers."""
    scene = KafkaScene(seed, "kafka")
    scene.start("old0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    scene.ours._log = None
    scene.ours.registers(offers=frozenset({"ping"}), offsets=None)
    scene.start_ours("consumer0")
    scene.world.run_for(20_000)
    assert not scene.world.events("registered")


CASES = (
    Case(releases_without_a_commit_to_kafka, replaced, 2),
    Case(waits_for_kafka_however_long, scenes.test_f147_a_release_waits_for_kafka_no_longer_than_old_members_wait),
    Case(
        takes_late_commits_for_rewinds,
        scenes.test_f148_an_old_members_late_commit_to_kafka_is_written_over_and_not_followed,
    ),
    Case(starts_at_the_node, replaced, 2),
    Case(waits_for_a_change_of_the_store, joiner, 2),
    Case(waits_for_a_change_of_the_store, joiner_at_a_leave, 2),
    Case(registers_in_any_store, without_brokers),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_each_rule_about_offsets_of_old_members_in_kafka_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)


def test_a_member_without_brokers_waits_beside_old_members_in_kafka() -> None:
    without_brokers(0)
