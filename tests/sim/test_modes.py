"""Layout legacy: a coordinator beside old members, which it knows only by their registrations, and the way back."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import seeds
from tests.sim.test_adoption import ADOPTED, IDS, OLD_MEMBER, STATE, OldGroup
from zkcoord.core.mode import Mode
from zkcoord.core.record import POKE, Request
from zkcoord.tree.request import requested
from zkcoord.tree.state import decode_state
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode

PYKAFKA = f"{IDS}/h:12345678-1234-1234-1234-123456789abc"


def noted(scene: OldGroup) -> Mode | None:
    """The mode in the group's state."""
    data = scene.world.ensemble.data(STATE)
    return None if data is None else decode_state(data).mode


def await_mode(scene: OldGroup, mode: Mode) -> None:
    """Run until the coordinator has noted this mode."""
    scene.world.run_until(lambda: noted(scene) is mode, what=f"the mode {mode.value}")


@pytest.mark.parametrize("seed", seeds(5))
def test_beside_another_library_the_group_is_observed_until_that_has_gone(seed: int) -> None:
    scene = OldGroup(seed, adopted=True, consumers=0)
    await_mode(scene, Mode.MIXED)
    scene.world.ensemble.operate(CreateNode(PYKAFKA, b"t"))
    await_mode(scene, Mode.OBSERVE)
    scene.world.ensemble.operate(DeleteNode(PYKAFKA, ANY_VERSION))
    await_mode(scene, Mode.MIXED)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_registration_that_nobody_can_read_is_waited_for_and_observed_ten_seconds_later(seed: int) -> None:
    scene = OldGroup(seed, adopted=True, consumers=0)
    scene.world.ensemble.operate(DeleteNode(OLD_MEMBER, ANY_VERSION))
    scene.world.ensemble.operate(CreateNode(OLD_MEMBER, b""))
    await_mode(scene, Mode.MIXED)
    since_ms = scene.world.now_ms
    await_mode(scene, Mode.OBSERVE)
    assert scene.world.now_ms - since_ms >= 9_000


@pytest.mark.parametrize("seed", seeds(5))
def test_f95_a_requested_poke_registers_nobody_and_makes_one_event(seed: int) -> None:
    scene = OldGroup(seed, adopted=True, consumers=0)
    await_mode(scene, Mode.MIXED)
    scene.decide_on(requested(ADOPTED, POKE, Request(run="r")))
    scene.look_on()
    assert scene.ids() == [OLD_MEMBER.rpartition("/")[2]]
    pokes = [
        tried for tried in scene.world.tried if any(f"{IDS}/{GROUP}_zpoke" in w.path for w in tried.transaction.writes)
    ]
    assert [(tried.applied, [type(w) for w in tried.transaction.writes][-2:]) for tried in pokes] == [
        (True, [CreateNode, DeleteNode])
    ]
