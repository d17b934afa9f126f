"""What an assignor gave to somebody who cannot have it goes to others as far as they have room."""

from __future__ import annotations

from collections import Counter

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds


@on_seeds()
def test_new_partitions_do_not_go_beyond_a_capacity_while_a_share_waits(seed: int) -> None:
    script = Script(seed, consumers=0, topics={"t": 4})
    world = script.world
    script.consumers.are_static(600_000)
    script.join("consumer0")
    world.run_until(lambda: script.registered("consumer0"), what="it joins")
    script.consumers.registers(capacity=2)
    script.join("consumer1")
    script.settle()
    script.consumers.registers(capacity=None)  # whoever starts again
    gone = script.member("consumer0")
    script.leave("consumer0")
    world.run_until(lambda: (GROUP, gone) not in script.field.registrations, what="it leaves")
    script.partition_count("t", 8)
    world.run_for(10_000)
    owned = Counter(script.owner(p) for p in script.partitions())
    assert owned[script.member("consumer1")] == 2
    script.process("consumer0").restarts = True
    world.crash("consumer0", restart_after_ms=100)
    world.run_until(lambda: script.process("consumer0").running and script.registered("consumer0"), what="it is back")
    world.run_until(lambda: len(script.owned("consumer0")) == 6, 20_000, "it has the rest")
    assert len(script.owned("consumer1")) == 2
    script.calm()
