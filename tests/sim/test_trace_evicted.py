"""The channel of an evicted member goes after its grace, also when nobody takes what it owned."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds


@on_seeds(3)
def test_an_evicted_member_leaves_no_command_behind(seed: int) -> None:
    """The only member hangs, is evicted, and its process is ended."""
    script = Script(seed, consumers=1, coordinators=1, rebalance_timeout_ms=1_000)
    script.settle()
    world = script.world
    script.set_policy(max_rebalance_retries=0)
    hold_calls(script.application("consumer0"))
    mine = script.member("consumer0")
    script.partition_count("t", 8)
    world.run_until(lambda: (GROUP, mine) not in script.field.registrations, 60_000, "it is evicted")
    world.stop("consumer0")
    script.calm()
