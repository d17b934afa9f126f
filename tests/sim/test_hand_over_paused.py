"""A group that people had paused is handed over to Kafka's consumers and taken back: it stays paused."""

from __future__ import annotations

import pytest

from tests.sim.test_hand_over import begun, equal, hand_over, tool
from tests.sim.test_hand_over_faults import Disturbed
from zkcoord.core.record import PAUSE
from zkcoord.errors import UsageError

PEOPLES = {"who": "ann@ops", "when": "2026-11-29T08:00:00+00:00", "run": "peoples"}


@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_f303_a_pause_of_people_stands_again_behind_the_return(loses: bool, again: bool) -> None:
    """`again`: both tools are run twice, as if the first runs broke off after their first write."""
    scene = begun()
    scene.edit_record(wish={**scene.record().get("wish", {}), PAUSE: PEOPLES})
    scene.world.run_until(lambda: scene.answered(PAUSE), what="it is paused")
    tree = Disturbed(scene, loses=loses)
    if again:
        tool(scene, tree).pause()
    hand_over(scene, tool(scene, tree))
    assert scene.record()["wish"][PAUSE] == {**PEOPLES, "handed_over": "done", "paused": True}
    if again:
        tool(scene, tree).pause()
    way = tool(scene, tree)
    equal(scene, way)
    assert way.resume() is False
    assert scene.record()["wish"][PAUSE] == PEOPLES
    assert way.resume() is False
    scene.world.run_for(10_000)
    assert (scene.record()["done"][PAUSE]["run"], scene.held()) == ("peoples", [])


def test_f303_a_pause_that_somebody_else_has_asked_for_meanwhile_is_no_end_of_the_return() -> None:
    scene = begun()
    hand_over(scene, tool(scene))
    way = tool(scene)
    equal(scene, way)
    scene.edit_record(wish={**scene.record()["wish"], PAUSE: PEOPLES})
    with pytest.raises(UsageError, match="somebody ended its pause meanwhile"):
        way.resume()


def test_f303_without_a_pause_of_people_the_group_goes_on() -> None:
    scene = begun()
    hand_over(scene, tool(scene))
    way = tool(scene)
    equal(scene, way)
    assert way.resume() is True
    scene.world.run_until(lambda: bool(scene.held()), what="it is read again")
