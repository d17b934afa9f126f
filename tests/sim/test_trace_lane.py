"""One refused raise refuses all behind it, and counts once: a rebalance is not held up by an edited record."""

from __future__ import annotations

from tests.sim.script import Script, on_seeds


@on_seeds(3)
def test_a_record_edited_during_a_rebalance_costs_no_seconds(seed: int) -> None:
    script = Script(seed, consumers=14, coordinators=1, topics={"t": 56})
    script.settle()
    world = script.world
    world.run_for(1_000)
    leader = script.wire(script.leader())
    began_ms = world.now_ms
    script.partition_count("t", 84)
    world.run_until(lambda: any("target is another" in str(ask.payload) for ask in leader.requests), what="the raise")
    script.set_policy(max_rebalance_retries=5)
    script.settle()
    print("took", world.now_ms - began_ms)
    assert world.now_ms - began_ms < 2_000
    script.calm()
