"""Crash-point sweep of groups that keep offsets in Kafka: a role dies at each of its writes, and loses the reply of
each.

The scenarios are those of `test_sweep`; the checkers of both stores are attached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.sim.log_checkers import Ledger
from tests.sim.offset_log import LogClient, OffsetLog
from tests.sim.scenarios import RECORD, Scene
from tests.sim.store_scene import CHECKPOINT_MS, PATIENCE_MS
from tests.sim.sweep import crash_points
from tests.sim.test_sweep import OPTIONS, POINTS_MIN, SCENARIOS
from tests.sim.world import World
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.tree.record import encode_record

SHORT = ("leave",)
MORE = ("join", "hard-death-failover", "reset", "eager-join", "eviction", "failover", "pause", "switch")


def in_store(store: str, scenario: Callable[[World], None], world: World) -> None:
    """Play the scenario with a group whose offsets are in this store from the beginning."""

    def begins(scene: Scene) -> None:
        log = OffsetLog(world)
        Ledger(world, scene.field, log)
        connect = partial(LogClient, log=log)
        scene.consumers.commit_to(connect, checkpoint_ms=CHECKPOINT_MS, patience_ms=PATIENCE_MS)
        world.ensemble.ensure(RECORD, encode_record(replace(DEFAULT_RECORD, store_name=store, store_step=1)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scene, "begins", begins)
        scenario(world)


@pytest.mark.parametrize("name", SHORT)
def test_every_role_of_a_group_in_kafka_may_die_or_lose_a_reply_at_each_of_its_writes(name: str) -> None:
    assert len(crash_points(partial(in_store, "kafka", SCENARIOS[name]), 0, OPTIONS)) >= POINTS_MIN


@pytest.mark.long
@pytest.mark.parametrize(
    ("store", "name"), [("kafka", name) for name in MORE] + [("dual", name) for name in (*SHORT, *MORE)]
)
def test_every_role_of_a_group_in_either_store_may_die_in_each_scenario(store: str, name: str) -> None:
    assert len(crash_points(partial(in_store, store, SCENARIOS[name]), 0, OPTIONS)) >= POINTS_MIN
