"""A commit that was asked for before a loss is not carried out after the partition was started again."""

from __future__ import annotations

from dataclasses import replace

from tests.sim import faults
from tests.sim.script import QUIET, Script, acknowledges, on_seeds


@on_seeds(12)
def test_a_commit_of_an_earlier_tenure_is_refused(seed: int) -> None:
    script = Script(seed, replace(QUIET, call_ms_max=0, read_ms_max=200), consumers=1, coordinators=1)
    script.settle()
    world, name = script.world, "consumer0"
    world.run_for(1_000)
    world.strike(name, acknowledges, "reply_lost")
    script.partition_count("t", 5)
    world.run_until(lambda: world.struck, what="an acknowledgement without an answer")
    faults.cut(world, script.process(name))
    role, _application, began_ms = script.actor(name).role, script.application(name), world.now_ms
    world.run_until(lambda: bool(role._committing._queue), what="it asks for a commit while there is no link")
    world.run_until(lambda: bool(script.journal("lost", since_ms=began_ms)), what="the lease ends")
    script.partition_count("t", 6)
    world.run_until(lambda: script.outstanding(name) == 1, what="another command")
    faults.uncut(world, script.process(name))
    world.run_until(lambda: bool(role._revived), what="what it holds starts again")
    if None in role.desk.commands.values():  # the new command is still being read
        script.wire(name).down = False
        world.run_until(lambda: not role._revived, what="it has started again")
        script.wire(name).down = True
    script.settle()
    world.run_for(3_000)
    script.calm()
