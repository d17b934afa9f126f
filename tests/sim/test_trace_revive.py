"""The answer to an earlier revival's on_start is not taken for the present one's."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.application import Application
from tests.sim.script import QUIET, SESSION_MS, Script, hold_calls, on_seeds

LEASE_MS = SESSION_MS * 2 // 3


def _calls(application: Application) -> list[str]:
    return [name for _, name, _ in application._calls]


def _lose_lease(script: Script, name: str) -> None:
    """Its link is deaf until its lease ends; then it is back in the same session."""
    world, application = script.world, script.application(name)
    wire, before, member = script.wire(name), _calls(application).count("lost"), script.member(name)
    wire.down = False
    world.run_until(lambda: _calls(application).count("lost") > before, what="the lease ends")
    wanted = _calls(application).count("start") + 1
    world.run_until(lambda: _calls(application).count("start") == wanted, what="it is told to start again")
    assert script.member(name) == member  # the same session


@on_seeds(4)
def test_the_answer_to_an_abandoned_revival_does_not_count_for_the_next(seed: int) -> None:
    """on_start is slow (or its worker is busy); the lease ends, comes back, ends, comes back; then on_start returns.

    Black box: only the checkers of invariants complain.
    """
    script = Script(seed, replace(QUIET, read_ms_max=60, call_ms_max=0), consumers=1, coordinators=1)
    script.settle()
    world, application = script.world, script.application("consumer0")
    world.run_for(1_000)
    hold_calls(application)
    _lose_lease(script, "consumer0")
    _lose_lease(script, "consumer0")
    assert _calls(application) == ["lost", "start", "lost", "start"]
    application._answer()  # lost
    application._answer()  # the first start, whose partitions were lost again meanwhile
    world.run_for(1_000)  # the queued on_lost waits for its turn: the worker is slow
    application._answer()
    del application._next_call
    application._answer()
    script.settle()
    world.run_for(3_000)
    script.calm()
