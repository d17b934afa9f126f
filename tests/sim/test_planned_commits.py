"""A commit of a member beside old members whose reply is lost while it starts further partitions of its share."""

from __future__ import annotations

import pytest

from tests.sim.mixed_scene import MixedScene
from tests.sim.script import hold_calls, on_seeds


@on_seeds(6)
@pytest.mark.parametrize("when", ["reply_lost", "request_lost"])
def test_f316_a_commits_outcome_is_read_before_it_counts_under_a_planned_start(seed: int, when: str) -> None:
    scene = MixedScene(seed)
    world = scene.world
    scene.start("old0")
    scene.start("old1")
    scene.start_ours("consumer0")
    scene.await_shared("old0", "old1", "consumer0")
    application = scene.application("consumer0")
    go_on = hold_calls(application)
    scene.ask_to_leave("old1")
    world.run_until(lambda: bool(application._calls), what="more partitions are being started")
    world.strike("consumer0", lambda transaction: transaction.why == "commit", when)
    world.run_until(lambda: world.struck, what="a commit without a reply")
    world.run_for(3_000)
    go_on()
    scene.await_shared("old0", "consumer0")
    scene.calm()
    lost = [entry for entry in world.journal if entry.event == "lost" and entry.process == "consumer0"]
    assert (lost, world.events("foreign_offset"), world.events("write_refused")) == ([], [], [])
