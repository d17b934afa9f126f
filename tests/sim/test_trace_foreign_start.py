"""Somebody writes the first offset of a partition while its start is being obeyed: it starts from there."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.actors import GROUP
from tests.sim.script import QUIET, Script, hold_calls, on_seeds
from zkcoord.tree.paths import DRAFT


@on_seeds(4)
def test_an_offset_written_during_a_start_becomes_the_position(seed: int) -> None:
    """An operator imports offsets while the first consumer starts; the application was told the log's end."""
    script = Script(seed, replace(QUIET, call_ms_max=0), consumers=1, coordinators=1, topics={"t": 1})
    world, application = script.world, script.application("consumer0")
    (partition,) = script.partitions()
    release = hold_calls(application)
    world.run_until(lambda: bool(application._calls), what="the reset policy is asked")
    application._answer()
    world.run_until(lambda: bool(application._calls), what="the start")
    path = DRAFT.offset(GROUP, partition)
    world.ensemble.ensure(path, b"5")
    script.field.offsets[GROUP, partition] = script.field.covered[GROUP, partition] = 5
    application._answer()
    release()
    script.settle()
    world.run_for(2_000)
    script.calm()
