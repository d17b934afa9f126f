"""Crash-point sweep in the layout legacy: each role dies at, and loses the reply of, each of its writes in turn.

The scenarios are those of `test_sweep`, and one in which a stranger takes claims away. As there, some are swept from
their first write on, while their group forms (`WHOLE`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.sim.sweep import crash_points
from tests.sim.test_sweep import (
    OPTIONS,
    OWN_POINTS_MIN,
    POINTS_MIN,
    SCENARIOS,
    SETTLE_STEPS,
    Middle,
    at_rest,
    failover_in_between,
    scene,
    settle,
    settled,
    undisturbed,
)
from tests.sim.world import World
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode

STRANGER = b"g_stranger-1416335000123-1a2b3c4d-0"
DELETED = ("deletion", "deletion-failover", "deletion-without-offsets", "deletion-without-offsets-failover")


def theft(world: World, middle: Middle = undisturbed) -> None:
    """A stranger deletes two claims of a settled group, and keeps one of the partitions for a while."""
    played = scene(world)
    settle(played, 2)
    taken, deleted, *_ = [LEGACY.owner(*key) for key in sorted(played.field.owners)]
    for path in (taken, deleted):
        assert not world.ensemble.operate(DeleteNode(path, ANY_VERSION)).reason
    assert not world.ensemble.operate(CreateNode(taken, STRANGER)).reason
    middle(played, lambda: len(played.field.holdings) == 2)
    world.run_until(lambda: len(played.field.holdings) == 2, SETTLE_STEPS, "what was only deleted is read again")
    assert not world.ensemble.operate(DeleteNode(taken, 0)).reason
    world.run_until(lambda: settled(played, 2), SETTLE_STEPS, "what was taken is read again")
    at_rest(played)


def of_claims(scenario: Callable[[World], None], world: World) -> None:
    """Play the scenario in this layout."""
    world.layout = LEGACY
    scenario(world)


PLAYED: Mapping[str, Callable[[World], None]] = {
    **{name: partial(of_claims, scenario) for name, scenario in SCENARIOS.items() if name not in DELETED},
    "theft": partial(of_claims, theft),
    "theft-failover": partial(of_claims, partial(theft, middle=failover_in_between)),
}
WHOLE = ("cold-start", "announced")
SHORT = (
    *WHOLE,
    "theft",
    "theft-failover",
    "join",
    "leave",
    "hard-death-failover",
    "eviction",
    "eviction-failover",
)


@pytest.mark.parametrize("name", SHORT)
def test_every_role_may_die_or_lose_a_reply_at_each_of_its_writes_about_claims(name: str) -> None:
    own = name not in WHOLE
    assert len(crash_points(PLAYED[name], 0, OPTIONS, own=own)) >= (OWN_POINTS_MIN if own else POINTS_MIN)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PLAYED if name not in WHOLE])
def test_every_role_may_die_or_lose_a_reply_in_each_scenario_of_a_group_with_claims(name: str) -> None:
    assert len(crash_points(PLAYED[name], 0, OPTIONS)) >= POINTS_MIN
