"""Each server has limits of its own for a session's timeout: what a session was given at first may become less."""

from __future__ import annotations

from dataclasses import replace

from tests.sim import faults
from tests.sim.script import QUIET, Script, on_seeds

LONG_MS, SHORT_MS = 40_000, 4_000


@on_seeds(3)
def test_a_lease_ends_before_a_session_that_goes_on_with_a_shorter_timeout(seed: int) -> None:
    """It comes to a server with a lower `maxSessionTimeout`, and is cut off: it must not read longer than it lasts."""
    script = Script(seed, replace(QUIET, session_timeout_ms=LONG_MS), consumers=2, topics={"t": 2})
    script.settle()
    world, ensemble = script.world, script.world.ensemble
    ensemble.timeout_max_ms = SHORT_MS
    (store,) = script.process("consumer0").stores
    store.break_wire("another server")
    world.run_for(2 * LONG_MS)  # it keeps its lease by more syncs
    assert script.journal("lost") == []
    gone, cut_ms = script.member("consumer0"), world.now_ms
    faults.cut(world, script.process("consumer0"))
    world.run_until(lambda: len(script.owned("consumer1")) == 2, what="its partitions are another's")
    assert world.now_ms < cut_ms + LONG_MS // 2
    (lost,) = {entry.time_ms for entry in script.journal("lost")}
    assert lost < script.field.gone["g", gone].time_ms
    world.run_for(LONG_MS)
    faults.uncut(world, script.process("consumer0"))
    script.settle()
    script.calm()
