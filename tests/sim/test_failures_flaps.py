"""Failure cases of links that break again and again (docs/failures.md): a consumer cannot see its own eviction."""

from __future__ import annotations

from collections import deque

import pytest

from tests.sim import faults
from tests.sim.script import SESSION_MS, Script, on_seeds

FLAPS = 10_000  # without end


def evicted_out_of_sight(seed: int, flaps: int, back_after_ms: int) -> tuple[Script, int]:
    """A consumer reads on without obeying, and is evicted while its link is down. It comes back within its lease. Its
    next `flaps` connections break at their first answer, that of the sync. Returns the time of the eviction, too."""
    script = Script(seed, consumers=1)
    script.settle()
    script.set_policy(max_rebalance_retries=0)
    world = script.world
    script.application("consumer0").hang(reads_on=True)
    script.join("consumer1")
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="the command that it does not obey")
    world.run_for(7_900)
    faults.cut(world, script.process("consumer0"))
    world.run_until(lambda: bool(world.events("evicted")), what="its eviction")
    (store,) = script.process("consumer0").stores
    store.break_wire("its network")
    store.flaps = deque([1] * flaps)
    evicted_ms = world.now_ms
    world.run_for(back_after_ms)
    assert script.journal("lost") == []  # its lease still holds
    faults.uncut(world, script.process("consumer0"))
    return script, evicted_ms


@on_seeds(5)
@pytest.mark.parametrize(("flaps", "back_after_ms"), [(1, 2_700), (FLAPS, 1)])
def test_f55_an_evicted_consumer_whose_link_breaks_again_stops_before_another_begins(
    flaps: int, back_after_ms: int, seed: int
) -> None:
    """Each link lives until its sync is answered, and breaks before the registration can be read again."""
    script, evicted_ms = evicted_out_of_sight(seed, flaps, back_after_ms)
    world, (store,) = script.world, script.process("consumer0").stores
    world.run_until(lambda: len(store.flaps) < flaps and store.wire is None, what="a link that broke again")
    if flaps == 1:
        script.process("consumer0").cut = True  # it finds no server any more
    world.run_for(3 * SESSION_MS)
    assert len(script.owned("consumer1")) == 4  # (a checker sees a reader after the grace)
    mine = [entry.time_ms for entry in script.journal("read") if entry.process == "consumer0"]
    assert max(mine) < evicted_ms + SESSION_MS
    store.flaps.clear()
    faults.uncut(world, script.process("consumer0"))
    script.application("consumer0").go_on()
    script.settle()
    script.calm()
